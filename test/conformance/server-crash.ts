/** A server that dies at a step of a change. */
import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { imageDir } from '../support/images.ts'
import type { VictimOptions } from './crash-victim.ts'
import type { RuncFixture } from './driver-runc-host.ts'

const diskPoolBytes = 4 * 1024 ** 3

interface Crash {
  /** False: its story has ended before that step. */
  isKilled: boolean
  /** What it was at when it died. */
  step: string
  /** What it has said since it opened. */
  said: unknown[]
}

type CrashOptions = Omit<VictimOptions, 'dataDir' | 'imageDir' | 'subnet' | 'diskPoolBytes'>

/**
 * Lets a server find the host as the last one left it, and die. `whenOpen` is called before its story begins, and not of a story that is
 * the start itself.
 */
export async function crash(
  { names, subnet }: Pick<RuncFixture, 'names' | 'subnet'>,
  more: CrashOptions,
  whenOpen: () => Promise<void> = async () => undefined,
): Promise<Crash> {
  const options: VictimOptions = { dataDir: names.dataDir, imageDir, subnet, diskPoolBytes, ...more }
  const victim = fork(new URL('crash-victim.ts', import.meta.url), [JSON.stringify(options)], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  const ended = once(victim, 'exit')
  const isOver = once(victim, 'close')
  const step = text(victim.stdout!)
  const said: unknown[] = []
  victim.on('message', (message) => said.push(message))
  if (!more.story.startsWith('readmission')) {
    try {
      await Promise.race([once(victim, 'message'), ended])
      assert.deepEqual(said.shift(), { quarantined: [] })
      await whenOpen()
    } catch (error) {
      victim.kill('SIGKILL')
      throw error
    }
    victim.send('go')
  }
  const [code, signal] = (await ended) as [number | null, string | null]
  assert.ok(signal === 'SIGKILL' || code === 0, `the server ended with ${signal ?? code}`)
  // What it said last may arrive after its end.
  await isOver
  return { isKilled: signal !== null, step: `${more.mode} ${await step}`, said }
}
