import { Semaphore } from '../../lib/async/semaphore.ts'
import { isServiceError } from '../../errors.ts'
import { createGuest } from '../guest-client/index.ts'
import { RelayUnavailable } from '../hostd/index.ts'
import { dialSocket } from './dial.ts'
import type { DriverContext } from './context.ts'
import type { ProcessIdentity } from './process.ts'

/** How long guests may leave the driver without an answer. */
export interface GuestPatience {
  /** How often each is asked while it answers. */
  intervalMs: number
  /** The longest wait for one answer. */
  answerMs: number
  /** From a question without an answer to the next. */
  pauseMs: number
  /** One is given up that has left all questions of so long a time without an answer, … */
  silenceMs: number
  /** … and at least so many: a host that stood still itself, or was asleep, has not waited. */
  questionsMin: number
}

/** Longer than any load keeps a guest from its one line: it needs a few milliseconds of its sandbox's share. */
export const guestPatience: GuestPatience = {
  intervalMs: 30_000,
  answerMs: 20_000,
  pauseMs: 5_000,
  silenceMs: 60_000,
  questionsMin: 3,
}

/** So many guests that do not answer hold up no question to others. */
const questionsAtOnce = 64

/**
 * `unknown` when the sandbox was worked on meanwhile, since what is frozen cannot answer, or when the question may not have
 * reached it.
 */
export type Answer = 'heard' | 'silent' | 'unknown'

export interface LivenessOptions {
  patience: GuestPatience
  /** The sandboxes that run, by id; a later run of the same sandbox has another identity. */
  runs: () => ReadonlyMap<string, ProcessIdentity>
  ask: (id: string, answerMs: number) => Promise<Answer>
  /** Called when a guest is given up; once more after the next questions if it still runs then. */
  declareDead: (id: string, run: ProcessIdentity) => void
  now?: () => number
}

interface Check {
  run: ProcessIdentity
  askAtMs: number
  isAsking: boolean
  /** When the first of the questions without an answer was put. */
  silentSinceMs: number | undefined
  unanswered: number
}

/**
 * Asks the guests of all running sandboxes, now and then and on suspicion, whether they are there. For each run of one:
 *
 *     heard ── no answer ──► silent ── any answer ──► heard
 *                              └── silenceMs and questionsMin ──► given up
 *
 * A guest that answers anything is there, were it nonsense.
 */
export class Liveness {
  readonly #options: LivenessOptions
  readonly #checks = new Map<string, Check>()
  readonly #semaphore = new Semaphore({ permits: questionsAtOnce })
  readonly #now: () => number

  constructor(options: LivenessOptions) {
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
  }

  /** Asks those whose time has come; to be called many times a second. */
  look(): void {
    const runs = this.#options.runs()
    for (const id of this.#checks.keys()) if (!runs.has(id)) this.#checks.delete(id)
    for (const [id, run] of runs) {
      const check = this.#checkOf(id, run)
      if (!check.isAsking && check.askAtMs <= this.#now()) void this.#ask(id, check)
    }
  }

  /** Something makes it look as if this one did not answer: the next look asks. */
  probeNow(id: string): void {
    const run = this.#options.runs().get(id)
    if (run === undefined) return
    const check = this.#checkOf(id, run)
    if (check.silentSinceMs === undefined) check.askAtMs = this.#now()
  }

  /** Whether all that makes a guest be given up is true of it now. */
  isDead(id: string, run: ProcessIdentity): boolean {
    const { silenceMs, questionsMin } = this.#options.patience
    const check = this.#checks.get(id)
    if (check?.run !== run || check.silentSinceMs === undefined) return false
    return check.unanswered >= questionsMin && this.#now() - check.silentSinceMs >= silenceMs
  }

  #checkOf(id: string, run: ProcessIdentity): Check {
    const known = this.#checks.get(id)
    if (known?.run === run) return known
    // Spread, so that sandboxes which started together are not asked together for ever.
    const askAtMs = this.#now() + Math.random() * this.#options.patience.intervalMs
    const check: Check = { run, askAtMs, isAsking: false, silentSinceMs: undefined, unanswered: 0 }
    this.#checks.set(id, check)
    return check
  }

  async #ask(id: string, check: Check): Promise<void> {
    const { patience, ask, declareDead } = this.#options
    check.isAsking = true
    await this.#semaphore.use(async () => {
      const askedAtMs = this.#now()
      const answer = await ask(id, patience.answerMs)
      if (answer === 'heard') {
        check.silentSinceMs = undefined
        check.unanswered = 0
      } else if (answer === 'silent') {
        check.silentSinceMs ??= askedAtMs
        check.unanswered += 1
      }
      check.askAtMs = this.#now() + (answer === 'heard' ? patience.intervalMs : patience.pauseMs)
    })
    check.isAsking = false
    if (this.isDead(id, check.run)) declareDead(id, check.run)
  }
}

/** Puts one question to a guest, whatever it answers. */
export async function askGuest(context: DriverContext, id: string, answerMs: number): Promise<Answer> {
  const { names, hostd, locks, connections } = context
  if (locks.isLocked(id)) return 'unknown'
  const end = AbortSignal.timeout(answerMs)
  let isFrozen = false
  const { starts } = hostd
  let heard = () => false
  const dial = async () => {
    const socket = await connections.open(id, () => dialSocket(hostd, names.guestSocket(id), end), end)
    socket.once('freeze', () => {
      isFrozen = true
      socket.destroy()
    })
    const { bytesRead } = socket
    heard = () => socket.bytesRead > bytesRead
    return socket
  }
  try {
    await createGuest(dial, { answerTimeoutMs: answerMs }).hello(end)
    return 'heard'
  } catch (error) {
    if (heard()) return 'heard'
    const isUnasked = isServiceError(error) && error.cause instanceof RelayUnavailable
    const isCutOff = isUnasked || hostd.starts !== starts || !hostd.isServing
    return isFrozen || isCutOff || locks.isLocked(id) ? 'unknown' : 'silent'
  }
}
