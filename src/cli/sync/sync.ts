import { type FSWatcher, watch } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { AtollError, ConnectionError, RateLimitedError, UnavailableError } from '../../../sdk/src/index.ts'
import { CliError } from '../exit-codes.ts'
import { note } from '../output.ts'
import { type Direction, firstPlan, isEmpty, knownAfter, nextPlan, type Plan, type Sides } from './plan.ts'
import { ignoreOf, type Rules, snapshotHere, snapshotThere } from './snapshot.ts'
import { carryOut, type Place } from './transfer.ts'

/** Changes come in bursts: an editor writes a draft and renames it. */
const settleMs = 100
/** How often the sandbox is asked what has changed there. */
const pollMs = 2000
const retryMs = 2000

export interface SyncOptions {
  direction: Direction
  rules: Rules
  /** Whether the first round removes what the winning side lacks. */
  removes: boolean
  /** Ends after the first round. */
  once: boolean
  /** Called after each round that changed something, and after the first. */
  done: (plan: Plan, isFirst: boolean) => Promise<void>
}

/** Keeps two folders in step until an error ends it. */
export async function sync(place: Place, options: SyncOptions): Promise<void> {
  const changes = options.once || options.direction === 'pull' ? undefined : new LocalChanges(place.here)
  try {
    let known: Sides | undefined
    for (;;) {
      known = await round(place, options, known)
      if (options.once) return
      const isPolled = options.direction !== 'push'
      await (changes === undefined ? sleep(pollMs) : changes.next(isPolled ? pollMs : undefined))
    }
  } finally {
    changes?.close()
  }
}

/** A round that the connection or a file that goes away breaks is made again: it compares anew. */
async function round(place: Place, options: SyncOptions, known: Sides | undefined): Promise<Sides> {
  for (let told = ''; ;) {
    try {
      return await oneRound(place, options, known)
    } catch (error) {
      if (options.once || !isPassing(error)) throw error
      const { message } = error as Error
      if (message !== told) note(`${message}; it is tried again`)
      told = message
      await sleep(retryMs)
    }
  }
}

async function oneRound(place: Place, options: SyncOptions, known: Sides | undefined): Promise<Sides> {
  const { direction, rules, removes, done } = options
  const { sandbox, user, there: folder } = place
  const ignore = ignoreOf(rules)
  const here = await snapshotHere(place.here, ignore)
  const isAsked = known === undefined || direction !== 'push'
  const found = isAsked ? await snapshotThere(sandbox, folder, { user, rules, ignore }) : known.there
  if (found === undefined && (known !== undefined || direction === 'pull')) {
    throw new CliError(`there is no folder ${sandbox.id}:${folder}${known === undefined ? '' : ' any more'}`)
  }
  const now = { here, there: found ?? new Map() }
  const plan = known === undefined ? firstPlan(now, direction, removes) : nextPlan(known, now, direction)
  await carryOut(place, plan, now)
  if (known === undefined || !isEmpty(plan)) await done(plan, known === undefined)
  return knownAfter(now, plan)
}

function isPassing(error: unknown): boolean {
  if (error instanceof CliError) return false
  const isPassingAnswer =
    error instanceof ConnectionError || error instanceof UnavailableError || error instanceof RateLimitedError
  // An error of `tar` has no code: a file that went away while it was read.
  return isPassingAnswer || (error instanceof AtollError && error.code === undefined && error.status === undefined)
}

/** Tells that something below a folder of this machine has changed. */
class LocalChanges {
  readonly #watcher: FSWatcher
  #isChanged = false
  #error: Error | undefined
  #wake: () => void = () => undefined

  constructor(folder: string) {
    this.#watcher = watch(folder, { recursive: true })
    this.#watcher.on('change', () => this.#tell())
    this.#watcher.on('error', (error) => {
      this.#error = error
      this.#tell()
    })
  }

  /** Waits for a change and the end of its burst, at most so long. */
  async next(timeoutMs: number | undefined): Promise<void> {
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => this.#wake(), timeoutMs)
    if (!this.#isChanged && this.#error === undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    clearTimeout(timer)
    if (this.#error !== undefined) throw new CliError(`changes here cannot be watched: ${this.#error.message}`)
    if (this.#isChanged) await sleep(settleMs)
    this.#isChanged = false
  }

  close(): void {
    this.#watcher.close()
  }

  #tell(): void {
    this.#isChanged = true
    this.#wake()
  }
}
