import { ServiceError } from '../errors.ts'
import { exists } from './exists.ts'
import type { HostTool } from './hostd/index.ts'

/** The removal of gigabytes of saved memory takes minutes. */
const removeTimeoutMs = 300_000
const endStraysTimeoutMs = 30_000

/**
 * Waits until all parallel steps have ended, then throws the first error: a clean-up that follows must not meet a step that still
 * makes something.
 */
export async function allDone(steps: readonly Promise<unknown>[]): Promise<void> {
  for (const result of await Promise.allSettled(steps)) {
    if (result.status === 'rejected') throw result.reason
  }
}

/** Code and message for a client. An error that is no `ServiceError` is logged and becomes `unavailable` with `fallback`. */
export function reportOf(
  { log }: { log: (message: string) => void },
  error: unknown,
  { failed, fallback }: { failed: string; fallback: string },
): Pick<ServiceError, 'code' | 'message'> {
  if (error instanceof ServiceError) return error
  log(`${failed} failed: ${String(error)}`)
  return { code: 'unavailable', message: fallback }
}

/** Waits for work that writes below `/run`, often a small file system. Throws `no_capacity` when that is full. */
export async function withinRun<Result>(work: Promise<Result>): Promise<Result> {
  try {
    return await work
  } catch (error) {
    throw (error as NodeJS.ErrnoException).code === 'ENOSPC' ? runIsFull(error) : error
  }
}

export function runIsFull(cause: unknown): ServiceError {
  return new ServiceError('no_capacity', '/run is full', { cause, details: { retryAfterSeconds: 60 } })
}

/** Cleans up after an error. The caller reports that one, so an error of the clean-up is only logged; `delete` and `open` remove what is left. */
export async function cleanUp(
  { log }: { log: (message: string) => void },
  id: string,
  work: () => Promise<void>,
): Promise<void> {
  await work().catch((error: unknown) => log(`clearing up after sandbox ${id} failed: ${String(error)}`))
}

/**
 * Removes folders and first detaches what is mounted at or in them: runc and CRIU leave mounts of a sandbox's root when a restore
 * is cut off. Harmless when there is nothing.
 */
export async function removeFolders(hostd: HostTool, folders: readonly string[]): Promise<void> {
  const areThere = await Promise.all(folders.map(exists))
  const dirs = folders.filter((_, index) => areThere[index])
  if (dirs.length > 0) await hostd.runTool({ op: 'remove-folders', dirs }, { timeoutMs: removeTimeoutMs })
}

/** Ends all CRIU processes that work in one of `folders`. No others: a lazy-pages daemon outlives a server, and its sandbox needs it. */
export async function endCriu(
  hostd: HostTool,
  folders: readonly string[],
  lazyPages: 'end' | 'leave' = 'end',
): Promise<void> {
  const request = { op: 'end-criu', dirs: folders, lazyPages: lazyPages === 'end' } as const
  await hostd.runTool(request, { timeoutMs: endStraysTimeoutMs })
}

/** Ends programs of a dead server that work on one of `paths` or below. Returns how many there were. */
export async function endStrayTools(hostd: HostTool, paths: readonly string[]): Promise<number> {
  const request = { op: 'end-tools', paths } as const
  return Number(await hostd.runTool(request, { timeoutMs: endStraysTimeoutMs }))
}
