import { ServiceError, isServiceError } from '../errors.ts'
import type { CreateOptions, Creation, CreationNote } from '../lib/creation.ts'
import type { Semaphore } from '../lib/async/semaphore.ts'
import type { Log } from '../lib/log.ts'
import type { RuntimeDriver } from './ports/runtime-driver.ts'
import type { Guest } from './ports/guest.ts'
import { specOf, withoutIdentity } from './new-sandbox.ts'
import type { RunningPlaces } from './running-places.ts'
import type { Sandbox, SandboxChange, SandboxStatus } from './sandbox.ts'
import { type Starts, stoppedMeanwhile } from './starts.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

/** What must happen in a fresh or woken sandbox before clients may use it; a failure undoes the start. */
export type Prepare = (guest: Guest, sandbox: Sandbox, signal: AbortSignal) => Promise<void>

export interface CreationOptions extends CreateOptions {
  prepare?: Prepare
  /** Somebody knows the id already: a failed start stays visible as `error` and may be tried again under the same id. */
  announced: boolean
}

export interface CreationDeps {
  store: SandboxStore
  driver: RuntimeDriver
  guest: (sandboxId: string) => Guest
  log: Log
  places: RunningPlaces
  starts: Starts
  /** By organisation. */
  turns: Semaphore
  /** Runs a move of one sandbox after those before it. */
  move: <Result>(sandboxId: string, work: () => Promise<Result>) => Promise<Result>
  /** Writes a new state and announces it; undefined when the sandbox was in none of `from`. */
  set: (
    sandboxId: string,
    change: SandboxChange & { status: SandboxStatus },
    from: readonly SandboxStatus[],
    note?: CreationNote,
  ) => Promise<Sandbox | undefined>
}

/**
 * Boots a sandbox whose record is complete but for its state. On failure nothing runs and the record says why. A request that
 * may be repeated has made its sandbox when that runs: until then a repeat begins anew, under the same id.
 */
export async function createSandbox(deps: CreationDeps, sandbox: Sandbox, options: CreationOptions): Promise<Sandbox> {
  const { driver, guest, starts, turns, move, set } = deps
  const { id } = sandbox
  const { announced, creation } = options
  try {
    await insert(deps, sandbox, creation)
  } catch (error) {
    // The row may be there all the same. Nobody else knows its id.
    if (!announced && isServiceError(error, 'unavailable')) await undo(deps, sandbox, error, options)
    throw error
  }
  const boot = async (signal: AbortSignal) => {
    await turns.use(() => driver.create(specOf(sandbox), signal), { key: sandbox.orgId, signal })
    await options.prepare?.(guest(id), sandbox, signal)
    const change = { status: 'running', startedAt: new Date() } as const
    const running = await set(id, change, ['creating'], creation && { creation, outcome: 'made' })
    if (!running) throw stoppedMeanwhile(id)
    return running
  }
  try {
    return await starts.run(id, (signal) => move(id, () => boot(signal)))
  } catch (error) {
    await undo(deps, sandbox, error, options)
    throw error
  }
}

async function insert({ store, places }: CreationDeps, sandbox: Sandbox, creation?: Creation): Promise<void> {
  await places.forRecord(sandbox.orgId, async () => {
    const earlier = await store.sandbox(sandbox.id, sandbox.orgId)
    // An earlier run of the request has undone it, or a client deleted it while that run started it.
    if (creation && earlier?.status === 'stopped') throw stoppedMeanwhile(sandbox.id)
    // A boot is tried again under the id that was announced, or that the request derives. A derived one is `creating` when an
    // earlier run could not write down its end.
    const left = creation ? (['error', 'creating'] as const) : (['error'] as const)
    const again = earlier && (await store.updateSandbox(sandbox.id, withoutIdentity(sandbox), left))
    if (!again) await store.insertSandbox(sandbox)
  })
}

async function undo(
  { driver, log, move, set }: CreationDeps,
  { id }: Sandbox,
  error: unknown,
  { announced, creation }: CreationOptions,
): Promise<void> {
  const reasonMessage = error instanceof ServiceError ? error.message : 'the sandbox could not be started'
  // What is wrong with the machine is for whoever runs it to read, with all that the answer leaves out.
  if (!isServiceError(error) || error.code === 'unavailable') {
    log.error({ err: error, sandboxId: id }, 'a sandbox could not be started')
  }
  await move(id, () => driver.delete(id)).catch((cause: unknown) => {
    log.error({ err: cause, sandboxId: id }, 'what was left of a failed start could not be removed')
  })
  const reason = isServiceError(error, 'patch_failed') ? 'patch_failed' : 'runtime_failed'
  const end = announced ? ({ status: 'error' } as const) : ({ status: 'stopped', stoppedAt: new Date() } as const)
  const note = creation && ({ creation, outcome: 'undone' } as const)
  await set(id, { ...end, reason, reasonMessage }, ['creating', 'running'], note)
}
