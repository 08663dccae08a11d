import { randomUUID } from 'node:crypto'
import { dirname } from 'node:path'
import { isServiceError } from '../../errors.ts'
import type { DirectoryEntry, Guest } from '../../sandbox/ports/guest.ts'
import type { ForkSign } from '../criu/restore.ts'
import { createGuest } from '../guest-client/index.ts'
import { hostToolIn } from '../host-names.ts'
import { rootPath } from '../oci/container-config.ts'
import type { ProcessIdentity } from '../process.ts'
import { dialSocket } from './dial.ts'
import type { Machine } from './machine.ts'
import type { SandboxRecord } from './records.ts'

/** Programs of a sandbox that run in a fork of it, and after a restore in place, before its other processes go on. */
export const hooksDir = '/etc/atoll/on-fork.d'

const hooksMax = 32
/** Timeout of one hook. At its end the hook is killed and reported as failed. */
const hookMs = 10_000
const allHooksMs = 30_000
/** The guest's answer may come this long after the timeout. */
const answerMs = 10_000
const outputBytesMax = 64 * 1024
const messageCharsMax = 200
const executable = 0o111

export type ForkHost = Pick<Machine, 'images' | 'cgroups' | 'names' | 'hostd' | 'log'>

/** What a restore does before the processes of a fork go on. */
export function forkSign(
  { images, cgroups, names }: Pick<ForkHost, 'images' | 'cgroups' | 'names'>,
  { id, generation }: SandboxRecord,
): ForkSign {
  const groups = cgroups.memberFiles(names.cgroup(id)).map((file) => dirname(file))
  return { hostTool: hostToolIn(images.path), generation, hooksDir, groups }
}

/** Writes `/run/atoll/fork-generation` as the record has it. A repeat is harmless. A failure is only logged: the sandbox works without it. */
export async function showGeneration(
  { hostd, log }: Pick<ForkHost, 'hostd' | 'log'>,
  { id, rangeStart, generation }: SandboxRecord,
  { pid, startTicks }: ProcessIdentity,
): Promise<void> {
  const process = { pid, startTicks }
  await hostd
    .runTool({ op: 'write-fork-generation', process, owner: rangeStart, value: generation })
    .catch((error: unknown) => log(`the generation of sandbox ${id} cannot be shown in it: ${String(error)}`))
}

/**
 * Runs the hooks one after the other, as root of the sandbox, then lets its other processes go on. Returns what failed, in words; a
 * failure does not end the sandbox.
 */
export async function runForkHooks(
  { hostd, names, cgroups, log }: Omit<ForkHost, 'images'>,
  { id, generation }: SandboxRecord,
): Promise<string | undefined> {
  try {
    const guest = createGuest((signal) => dialSocket(hostd, names.guestSocket(id), signal))
    const failures = await failuresOf(guest, { ATOLL_FORK_GENERATION: generation })
    if (failures.length > 0) log(`hooks of sandbox ${id} have failed: ${failures.join('; ')}`)
    return failures.length > 0 ? failures.join('; ') : undefined
  } catch (error) {
    log(`the hooks of sandbox ${id} cannot be run: ${String(error)}`)
    return 'the hooks cannot be run'
  } finally {
    await cgroups.thaw(names.cgroup(id))
  }
}

async function failuresOf(guest: Guest, envs: Record<string, string>): Promise<string[]> {
  const failures: string[] = []
  const until = performance.now() + allHooksMs
  for (const { name } of await hooksOf(guest)) {
    const timeoutMs = Math.min(hookMs, Math.floor(until - performance.now()))
    const failure = timeoutMs > 0 ? await failureOf(guest, name, envs, timeoutMs) : 'there was no time left'
    if (failure !== undefined) failures.push(`${name}: ${failure}`)
  }
  return failures
}

/** As `run-parts` does: executable files, in the order of the bytes of their names. */
async function hooksOf(guest: Guest): Promise<DirectoryEntry[]> {
  try {
    const entries = await guest.list(hooksDir, 'root')
    const hooks = entries.filter(
      ({ name, isDir, mode }) => !isDir && !name.startsWith('.') && (mode & executable) !== 0,
    )
    return hooks
      .toSorted((one, other) => Buffer.compare(Buffer.from(one.name), Buffer.from(other.name)))
      .slice(0, hooksMax)
  } catch (error) {
    if (isServiceError(error, 'not_found') || isServiceError(error, 'invalid_request')) return []
    throw error
  }
}

async function failureOf(
  guest: Guest,
  name: string,
  envs: Record<string, string>,
  timeoutMs: number,
): Promise<string | undefined> {
  const id = `on-fork-${randomUUID()}`
  const request = { id, argv: [`${hooksDir}/${name}`], envs: { PATH: rootPath, HOME: '/root', ...envs }, timeoutMs }
  try {
    const { process, output } = await guest.run(request, { waitMs: timeoutMs + answerMs, bytesMax: outputBytesMax })
    if (process.timedOut === true) return `it ran longer than ${timeoutMs} ms and was ended`
    if (process.exitCode === 0) return undefined
    const said = output?.stderr.toString('utf8').trim().split('\n').at(-1) ?? ''
    return `exit ${process.exitCode ?? 'unknown'}${said === '' ? '' : `, ${said.slice(0, messageCharsMax)}`}`
  } catch (error) {
    return String(error instanceof Error ? error.message : error).slice(0, messageCharsMax)
  }
}
