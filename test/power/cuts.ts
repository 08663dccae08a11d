/**
 * The power is cut under load, on a disk that forgets what was not flushed (`../support/volatile-disk.c`): each acknowledged thing is there
 * after the next boot, or a state that docs/operate/reliability.md names tells its loss. `ATOLL_POWER_CUTS` cuts, 30 by default, with the choices of
 * `ATOLL_POWER_SEED`; both are printed. The last two tests show that a flush that is left out is found.
 */
import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { appendFile } from 'node:fs/promises'
import { test } from 'node:test'
import { sh, startSandbox } from '../e2e/sandbox-calls.ts'
import { Random } from '../e2e/soak/random.ts'
import type { CutKind } from '../support/volatile-disk.ts'
import { Machine } from './machine.ts'
import { Trial } from './trial.ts'

const cuts = Number(process.env['ATOLL_POWER_CUTS'] ?? 30)
const seed = Number(process.env['ATOLL_POWER_SEED'] ?? randomInt(2 ** 31))
const firstStarts = Math.ceil(cuts / 6)
/** About those of a whole first start. */
const firstStartWrites = 1000

test(`power: what was acknowledged is there or told as lost after ${cuts} cuts, seed ${seed}`, async () => {
  await using machine = await Machine.start()
  const trial = new Trial(machine, seed)
  for (let round = 1; round <= cuts; round += 1) {
    const { words, faults } = await trial.cut()
    process.stdout.write(`${words}\n`)
    assert.deepEqual(faults, [], `seed ${seed}, ${words}\n${machine.server.output.slice(-6000)}`)
  }
})

test(`power: ${firstStarts} cuts in the first start leave a directory that the next start uses, seed ${seed}`, async () => {
  await using machine = await Machine.start('test_first_start')
  const random = new Random(seed, 'first starts')
  for (let round = 1; round <= firstStarts; round += 1) {
    await machine.startAnew()
    const kind = random.pick<CutKind>(['none', 'prefix', 'subset'])
    const { writes, unflushed, kept } = await machine.cut(kind, seed + round, random.between(1, firstStartWrites))
    process.stdout.write(`first start ${round}: ${kind}, ${kept} of ${unflushed} blocks left, after ${writes} writes\n`)
    await machine.boot()
    assert.equal(await sh(machine.server, await startSandbox(machine.server), 'echo works'), 'works')
  }
})

test('power: a database that does not sync its log is found out', async () => {
  await using machine = await Machine.start()
  await machine.server.stop()
  await appendFile(`${machine.disk.dataDir}/db/own.conf`, 'fsync = off\n')
  await machine.server.restart()
  const faults = await new Trial(machine, seed).faultsOfACut()
  process.stdout.write(`${faults}\n`)
  assert.notEqual(faults, '')
})

test('power: a flush that is answered and not done is found out', async () => {
  await using machine = await Machine.start()
  await machine.disk.lie()
  const faults = await new Trial(machine, seed).faultsOfACut()
  process.stdout.write(`${faults}\n`)
  assert.notEqual(faults, '')
})
