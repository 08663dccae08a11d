/**
 * Ends of the server at each step of a change that replaces the present of a sandbox, or takes one back: what was there before is still
 * there, or what the change was to make, and the change can be made again.
 */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { everyCall, isThorough, roundsOf } from '../../src/lib/testing/thorough.ts'
import type { KnownResources } from '../../src/sandbox/ports/runtime-driver.ts'
import type { CrashMode, Story } from './crash-victim.ts'
import { knowing } from './driver-known.ts'
import { count, createLoaded, startLoad } from './driver-memory-load.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, specOf, succeed, things } from './driver-shell.ts'
import { crash } from './server-crash.ts'

/** Ends a server at each step of a story: in both ways in a thorough run, else in one and the other by turns. False: the story is over. */
async function everyEnd(
  { stepsMin, stride }: { stepsMin: number; stride: number },
  survive: (at: number, mode: CrashMode) => Promise<boolean>,
): Promise<void> {
  const endAt = async (at: number) => {
    let isKilled = true
    for (let way = 0; way < roundsOf(1, 2); way += 1) {
      isKilled = await survive(at, (at + way) % 2 === 0 ? 'before' : 'during')
    }
    return isKilled
  }
  await everyCall(stepsMin, endAt, { stride })
}

describe('the runc driver, ended in the middle of a change', () => {
  const runc = useRunc({}, { mayQuarantineMany: true })
  const { guest } = runc
  const state = (id: string) => succeed(guest(id), 'cat /workspace/state')

  /** What there is, without what has another name each time, and without the notes of the last start. */
  async function stock(...ids: readonly string[]): Promise<string[]> {
    const lines = things(await runc.fixture.trace()).filter((line) => !/\/(checkpoint|runc\.log)$/.test(line))
    return lines.map((line) =>
      ids.reduce((text, id) => text.replaceAll(new RegExp(`${id}(\\.\\w{8}|\\.\\d+)(?!\\w)`, 'g'), id), line),
    )
  }

  /** Lets a server die, and starts another one, which finds all that is known; its database may have learned more. */
  async function crashAndStart(
    story: Story,
    options: { at: number; mode: CrashMode; sandboxId: string; checkpointId: string },
    before: Partial<KnownResources>,
    after: (said: readonly unknown[]) => Partial<KnownResources> = () => before,
  ) {
    await runc.driver.close()
    const known = await knowing(runc.fixture, before)
    const { isKilled, step, said } = await crash(runc.fixture, { ...options, story, known })
    try {
      const report = await runc.reopen(after(said))
      assert.deepEqual([report.lost, report.lostCheckpoints, report.quarantined], [[], [], []])
    } catch (cause) {
      throw new Error(`after the end of the server ${step}`, { cause })
    }
    return { isKilled, step, said }
  }

  test('restore: the present or the checkpoint is whole when the server ends at a step', async () => {
    const [id, cp] = [await createLoaded(runc), freshId('cp')]
    const known = { sandboxIds: [id], checkpointIds: [cp] }
    await succeed(guest(id), 'echo checkpoint > /workspace/state')
    await runc.driver.checkpoint(id, cp, 'full')
    await runc.driver.restore(specOf(id), cp)
    const calm = await stock(id)
    const outcomes = new Set<string>()
    await everyEnd({ stepsMin: 20, stride: 12 }, async (at, mode) => {
      await succeed(guest(id), 'echo present > /workspace/state')
      assert.equal(await count(guest(id)), 2)
      const options = { at, mode, sandboxId: id, checkpointId: cp }
      const { isKilled, step } = await crashAndStart('restore', options, known)
      await runc.driver.wake(specOf(id))
      const found = await state(id)
      outcomes.add(found)
      assert.equal(await count(guest(id)), found === 'present' ? 3 : 2, `${found}, ${step}`)
      await runc.driver.restore(specOf(id), cp)
      assert.deepEqual([await state(id), await stock(id)], ['checkpoint', calm], step)
      return isKilled
    })
    // A few steps may all lie before the change, or behind it.
    if (isThorough) assert.deepEqual([...outcomes].toSorted(), ['checkpoint', 'present'])
    await remove(runc.driver, id, cp)
  })

  test('cold wake: no memory is lost when the server ends at a step', async () => {
    const id = await createLoaded(runc)
    await succeed(guest(id), 'echo kept > /workspace/state')
    await runc.driver.hibernate(id)
    const calm = await stock(id)
    await everyEnd({ stepsMin: 20, stride: 12 }, async (at, mode) => {
      const [first, second, fork] = [freshId('cp'), freshId('cp'), freshId('sb')]
      const options = { at, mode, sandboxId: id, checkpointId: first }
      const readyOnes = (said: readonly unknown[]) => (said.includes('kept') ? [first] : [])
      const { isKilled, step, said } = await crashAndStart('coldWake', options, { sandboxIds: [id] }, (told) => ({
        sandboxIds: [id],
        checkpointIds: readyOnes(told),
      }))
      const ready = readyOnes(said)
      const { driver } = runc
      // As a start brings machines to their records.
      await driver.hibernate(id)
      if (ready.length === 0) assert.equal(driver.hasMemory(id), true, step)
      const isKept = ready.some((one) => driver.isMemoryKept(id, one))
      if (driver.hasMemory(id) && !isKept) await driver.checkpoint(id, second, 'full')
      await driver.restart(specOf(id))
      assert.equal(await succeed(guest(id), 'cat /workspace/state; pgrep -c node || true'), 'kept\n0', step)
      const [kept = second] = ready
      await driver.create(specOf(fork, { from: { checkpointId: kept } }))
      assert.deepEqual([await state(fork), await count(guest(fork))], ['kept', 2], step)
      await startLoad(guest(id))
      await driver.hibernate(id)
      await remove(driver, fork, first, second)
      assert.deepEqual(await stock(id), calm, step)
      return isKilled
    })
    await remove(runc.driver, id)
  })

  for (const story of ['readmission', 'readmissionByHand'] as const) {
    test(`quarantine: what is taken back is whole when the server ends at a step of its ${story}`, async () => {
      const [id, cp] = [await createLoaded(runc), freshId('cp')]
      const known = { sandboxIds: [id], checkpointIds: [cp] }
      const nothing = { sandboxIds: [], checkpointIds: [] }
      await runc.driver.checkpoint(id, cp, 'full')
      await succeed(guest(id), 'echo kept > /workspace/state')
      await runc.driver.hibernate(id)
      const calm = await stock(id)
      await everyEnd(
        story === 'readmission' ? { stepsMin: 20, stride: 12 } : { stepsMin: 2, stride: 1 },
        async (at, mode) => {
          await runc.driver.close()
          const { quarantined } = await runc.reopen({ ...nothing, abandoned: nothing })
          assert.deepEqual(quarantined.map((item) => item.id).toSorted(), [cp, id].toSorted())
          const options = { at, mode, sandboxId: id, checkpointId: cp }
          const { isKilled, step } = await crashAndStart(story, options, known)
          assert.equal(runc.driver.hasMemory(id), true, step)
          assert.deepEqual(await stock(id), calm, step)
          return isKilled
        },
      )
      await runc.driver.wake(specOf(id))
      assert.deepEqual([await state(id), await count(guest(id))], ['kept', 2])
      const fork = await create(runc.driver, { from: { checkpointId: cp } })
      assert.equal(await count(guest(fork)), 2)
      await remove(runc.driver, id, fork, cp)
    })
  }
})
