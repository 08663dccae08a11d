/** Programs that answer lines, and the restores over which they must go on as if nothing had been. */
import assert from 'node:assert/strict'
import { roundsOf } from '../../src/lib/testing/thorough.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import type { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, sendLine, specOf } from './driver-shell.ts'

const rounds = roundsOf(2, 50)

/** How memory comes back, and the smallest that comes lazily. */
export const waysOfMemory = [
  ['at once', 1024 ** 4],
  ['lazily', 1],
] as const

/** Starts a program in Python, and returns once it has printed a line. */
export async function start(guest: Guest, id: string, program: string, ...args: string[]): Promise<void> {
  await guest.spawn({ id, argv: ['/usr/bin/python3', '-c', program, ...args], envs: { PATH: '/usr/bin' }, stdin: true })
  await lineAt(guest, id, 0)
}

/** The answer of a program to a line. */
export async function ask(guest: Guest, id: string, line: string): Promise<string> {
  const { length } = await linesOf(guest, id)
  await sendLine(guest, id, line)
  return lineAt(guest, id, length)
}

/** The line of that index that a program prints, once it has. */
export async function lineAt(guest: Guest, id: string, index: number): Promise<string> {
  for (;;) {
    const line = (await linesOf(guest, id))[index]
    if (line !== undefined) return line
    if ((await guest.process(id)).running) continue
    const { stdout, stderr } = await guest.output(id)
    assert.fail(`${id} has ended: ${stdout.toString()}${stderr.toString()}`)
  }
}

export async function linesOf(guest: Guest, id: string): Promise<string[]> {
  return (await guest.output(id)).stdout.toString().split('\n').slice(0, -1)
}

/** Calls `check` over a wake, in a fork, in a fork of that, and after a restore in place; then `last` in each of the last three. */
export async function overRestores(
  { driver }: Pick<ReturnType<typeof useRunc>, 'driver'>,
  source: string,
  check: (id: string, where: string) => Promise<void>,
  last: (id: string, where: string) => Promise<void>,
): Promise<void> {
  const [cp, next] = [freshId('cp'), freshId('cp')]
  await check(source, 'before')
  for (let round = 1; round < rounds; round += 1) {
    await driver.hibernate(source)
    await driver.wake(specOf(source))
    await check(source, `wake ${round}`)
  }
  await driver.checkpoint(source, cp, 'full')
  await check(source, 'after the checkpoint')
  const fork = await create(driver, { from: { checkpointId: cp } })
  await check(fork, 'fork')
  await driver.checkpoint(fork, next, 'full')
  const second = await create(driver, { from: { checkpointId: next } })
  await last(fork, 'fork')
  await check(second, 'fork of a fork')
  await last(second, 'fork of a fork')
  await driver.hibernate(source)
  await driver.wake(specOf(source))
  await check(source, 'wake')
  await driver.restore(specOf(source), cp)
  await check(source, 'restore in place')
  await last(source, 'restore in place')
  await remove(driver, source, fork, second, cp, next)
}
