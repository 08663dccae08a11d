import { type FSWatcher, watch } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { reasonOf } from '../../../sdk/src/reasons.ts'
import { AtollError, ConnectionError, RateLimitedError, UnavailableError } from '../../../sdk/src/index.ts'
import { CliError } from '../exit-codes.ts'
import { note } from '../output.ts'
import { type Direction, firstPlan, isEmpty, knownAfter, nextPlan, type Plan, type Sides } from './plan.ts'
import { ignoreOf, type Rules, snapshotHere, snapshotThere } from './snapshot.ts'
import { carryOut, type Place } from './transfer.ts'

/** Changes come in bursts: an editor writes a draft and renames it. */
const settleMs = 100
/** How often a sandbox whose folder cannot be watched is asked what has changed there. */
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
  const { direction, once } = options
  if (once) return void (await round(place, options, undefined))
  using changes = new Changes()
  if (direction !== 'pull') changes.watchHere(place.here)
  let known = await round(place, options, undefined)
  // The first round has made the folder.
  if (direction !== 'push') changes.watchThere(place)
  for (;;) {
    await changes.next()
    known = await round(place, options, known)
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
  const plan = known === undefined ? firstPlan(now, { direction, removes }) : nextPlan(known, now, direction)
  const carriedOut = await carryOut(place, plan, now)
  if (known === undefined || !isEmpty(carriedOut)) await done(carriedOut, known === undefined)
  return knownAfter(now, carriedOut)
}

function isPassing(error: unknown): boolean {
  if (error instanceof CliError) return false
  const isPassingAnswer =
    error instanceof ConnectionError || error instanceof UnavailableError || error instanceof RateLimitedError
  // An error of `tar` has no code: a file that went away while it was read.
  return isPassingAnswer || (error instanceof AtollError && error.code === undefined && error.status === undefined)
}

/** Tells that something has changed below one of the folders. */
class Changes implements Disposable {
  readonly #closed = new AbortController()
  #watcher: FSWatcher | undefined
  #isPolled = false
  #isChanged = false
  #error: Error | undefined
  #wake: () => void = () => undefined

  watchHere(folder: string): void {
    this.#watcher = watch(folder, { recursive: true })
    this.#watcher.on('change', () => this.#tell())
    this.#watcher.on('error', (error) => {
      this.#error = error
      this.#tell()
    })
  }

  /** A sandbox that sleeps is not woken. Where its folder cannot be watched, it is asked, which keeps it awake. */
  watchThere({ sandbox, there, user }: Place): void {
    const follow = async () => {
      const onOpen = () => this.#tell()
      const watched = sandbox.files.watch(there, { recursive: true, user, onOpen, signal: this.#closed.signal })
      for await (const _ of watched) this.#tell()
      throw new CliError('the folder or the sandbox is gone')
    }
    follow().catch((error: unknown) => {
      if (this.#closed.signal.aborted) return
      note(`the sandbox is asked every ${pollMs / 1000} s: ${reasonOf(error)}`)
      this.#isPolled = true
      this.#wake()
    })
  }

  /** Waits for a change and the end of its burst. */
  async next(): Promise<void> {
    const timer = this.#isPolled ? setTimeout(() => this.#wake(), pollMs) : undefined
    if (!this.#isChanged && this.#error === undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    clearTimeout(timer)
    if (this.#error !== undefined) throw new CliError(`changes here cannot be watched: ${reasonOf(this.#error)}`)
    if (this.#isChanged) await sleep(settleMs)
    this.#isChanged = false
  }

  [Symbol.dispose](): void {
    this.#watcher?.close()
    this.#closed.abort()
  }

  #tell(): void {
    this.#isChanged = true
    this.#wake()
  }
}
