/** What the table in docs/internals/checkpoints.md says of memory: what comes back, and what a dump refuses, in which words. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, outputOnce, remove, sendLine, slowness, specOf } from './driver-shell.ts'
import { keptChannels } from './kept-channels.ts'
import { keptFiles } from './kept-files.ts'
import { keptProcesses } from './kept-processes.ts'
import { lost, refused } from './kept-refused.ts'
import { prelude, type KeptRow } from './kept-rows.ts'

const rows = [...keptFiles, ...keptChannels, ...keptProcesses, ...lost]
const memoryMb = 1024
const endWaitMs = 60_000 * slowness

/** Makes what the first piece says, and answers a line with what the second one finds. */
const program = `
import sys, traceback
scope = {"__name__": "row"}
def run(code):
    try: exec(code, scope)
    except BaseException:
        told = traceback.format_exc().replace("\\n", " | ")
        code_lines = code.split("\\n")
        at = [frame.lineno for frame in traceback.extract_tb(sys.exc_info()[2]) if frame.filename == "<string>"]
        return told + (" at: " + code_lines[at[-1] - 1] if at else "")
    return "kept"
print(run(sys.argv[1] + sys.argv[2]), flush=True)
sys.stdin.readline()
print(run(sys.argv[3]), flush=True)
sys.stdin.readline()
import os, signal
os.kill(os.getpid(), signal.SIGKILL)`

async function lineOf(guest: Guest, id: string, index: number): Promise<string> {
  const lines = (stdout: string) => stdout.split('\n').slice(0, -1)
  const stdout = await outputOnce(guest, id, (said) => lines(said).length > index).catch(String)
  return lines(stdout)[index] ?? stdout
}

async function make(guest: Guest, row: KeptRow, id: string): Promise<void> {
  const argv = ['/usr/bin/python3', '-c', program, prelude, row.make, row.check] as const
  await guest.spawn({ id, argv: [...argv], envs: { PATH: '/usr/bin:/bin' }, stdin: true })
  assert.equal(await lineOf(guest, id, 0), 'kept', row.name)
}

describe('what memory keeps', () => {
  const runc = useRunc()
  const { guest } = runc

  /** What a sandbox finds otherwise than the table says. */
  const otherwise = async (id: string) => {
    const found: string[] = []
    for (const [index, row] of rows.entries()) {
      await sendLine(guest(id), `row-${index}`)
      const told = await lineOf(guest(id), `row-${index}`, 1)
      if (told !== 'kept') found.push(`${row.name}: ${told}`)
    }
    return found
  }

  test('memory: each row of the table is as it says after a wake and in a fork', async () => {
    const { driver } = runc
    const [source, cp] = [await create(driver, { memoryMb }), freshId('cp')]
    for (const [index, row] of rows.entries()) await make(guest(source), row, `row-${index}`)
    await driver.checkpoint(source, cp, 'full')
    const fork = await create(driver, { memoryMb, from: { checkpointId: cp } })
    assert.deepEqual(await otherwise(fork), [], 'in a fork')
    await driver.hibernate(source)
    await driver.wake(specOf(source, { memoryMb }))
    assert.deepEqual(await otherwise(source), [], 'after a wake')
    await remove(driver, source, fork, cp)
  })

  test('memory: what cannot be kept is refused in words that name it, and the sandbox runs on', async () => {
    const { driver } = runc
    const id = await create(driver)
    const wrong: string[] = []
    for (const [index, row] of refused.entries()) {
      await make(guest(id), { ...row, check: '' }, `row-${index}`)
      const cp = freshId('cp')
      const told = await driver.checkpoint(id, cp, 'full').then(
        () => 'ready',
        (error: unknown) => String(error),
      )
      if (!row.reason.test(told)) wrong.push(`${row.name}: ${told}`)
      await driver.deleteCheckpoint(cp)
      await sendLine(guest(id), `row-${index}`)
      await sendLine(guest(id), `row-${index}`)
      await guest(id).process(`row-${index}`, endWaitMs)
    }
    assert.deepEqual(wrong, [])
    await remove(driver, id)
  })
})
