/** One cut of the power under load; `npm run test:power` has many, also in a first start, and shows that a flush that is left out is found. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Machine } from '../power/machine.ts'
import { Trial } from '../power/trial.ts'

const seed = 20_261_126

test('power: what was acknowledged under load is there after a cut, or a state tells that it is lost', async (t) => {
  await using machine = await Machine.start()
  const { words, faults } = await new Trial(machine, seed).cut()
  t.diagnostic(words)
  assert.deepEqual(faults, [], `${words}\n${machine.server.output.slice(-6000)}`)
})
