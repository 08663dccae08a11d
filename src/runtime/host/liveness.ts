import type { KeyedMutex } from '../../lib/async/mutex.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { isServiceError } from '../../errors.ts'
import { createGuest } from '../guest-client/index.ts'
import { type Hostd, RelayUnavailable } from '../hostd/index.ts'
import type { ProcessIdentity } from '../process.ts'
import { dialSocket } from './dial.ts'
import type { HostNames } from '../host-names.ts'
import type { Connections } from './connections.ts'

/**
 * When guests are probed, and when they are declared dead. Longer than any load delays the one line of a guest, which takes a few
 * milliseconds of its sandbox's CPU share.
 */
export const livenessTimes = {
  /** Interval of probes of a guest that answers. */
  intervalMs: 30_000,
  /** Timeout of one probe. */
  answerMs: 20_000,
  /** From a probe without an answer to the next. */
  pauseMs: 5_000,
  /** A guest is dead when it has answered no probe for this long, … */
  silenceMs: 60_000,
  /** … and at least this many: a host that was suspended itself has not waited. */
  probesMin: 3,
}
export type LivenessTimes = typeof livenessTimes

/** Up to this many silent guests delay no probe of another. */
const probesAtOnce = 64

/**
 * `unknown` when other work, or a full disk, held the sandbox meanwhile, since a frozen guest cannot answer, or when the probe may not have
 * reached it.
 */
export type GuestAnswer = 'heard' | 'silent' | 'unknown'

export interface LivenessOptions {
  times: LivenessTimes
  /** The sandboxes that run, by id; a later run of the same sandbox has another identity. */
  runs: () => ReadonlyMap<string, ProcessIdentity>
  probe: (id: string, answerMs: number) => Promise<GuestAnswer>
  /** Called for a dead guest, and again after the next probe if it still runs then. */
  declareDead: (id: string, run: ProcessIdentity) => void
  now?: () => number
}

interface Check {
  run: ProcessIdentity
  askAtMs: number
  isAsking: boolean
  /** Time of the first probe since the last answer. */
  silentSinceMs: number | undefined
  unanswered: number
}

/**
 * Probes the guests of all running sandboxes, at intervals and on request. States of each run:
 *
 *     heard ── no answer ──► silent ── any answer ──► heard
 *                              └── silenceMs and probesMin ──► dead
 *
 * Any answer counts, nonsense too.
 */
export class Liveness {
  readonly #options: LivenessOptions
  readonly #liveness = new Map<string, Check>()
  readonly #semaphore = new Semaphore({ permits: probesAtOnce })
  readonly #now: () => number

  constructor(options: LivenessOptions) {
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
  }

  /** Probes the guests that are due; to be called many times a second. */
  look(): void {
    const runs = this.#options.runs()
    for (const id of this.#liveness.keys()) if (!runs.has(id)) this.#liveness.delete(id)
    for (const [id, run] of runs) {
      const check = this.#checkOf(id, run)
      if (!check.isAsking && check.askAtMs <= this.#now()) void this.#probe(id, check)
    }
  }

  /** Has the next look probe this guest. */
  probeNow(id: string): void {
    const run = this.#options.runs().get(id)
    if (run === undefined) return
    const check = this.#checkOf(id, run)
    if (check.silentSinceMs === undefined) check.askAtMs = this.#now()
  }

  /** Whether this run of a guest is dead now. */
  isDead(id: string, run: ProcessIdentity): boolean {
    const { silenceMs, probesMin } = this.#options.times
    const check = this.#liveness.get(id)
    if (check?.run !== run || check.silentSinceMs === undefined) return false
    return check.unanswered >= probesMin && this.#now() - check.silentSinceMs >= silenceMs
  }

  #checkOf(id: string, run: ProcessIdentity): Check {
    const known = this.#liveness.get(id)
    if (known?.run === run) return known
    // Spread, so that guests that started together are not probed together for ever.
    const askAtMs = this.#now() + Math.random() * this.#options.times.intervalMs
    const check: Check = { run, askAtMs, isAsking: false, silentSinceMs: undefined, unanswered: 0 }
    this.#liveness.set(id, check)
    return check
  }

  async #probe(id: string, check: Check): Promise<void> {
    const { times, probe, declareDead } = this.#options
    check.isAsking = true
    await this.#semaphore.use(async () => {
      const askedAtMs = this.#now()
      const answer = await probe(id, times.answerMs)
      if (answer === 'heard') {
        check.silentSinceMs = undefined
        check.unanswered = 0
      } else if (answer === 'silent') {
        check.silentSinceMs ??= askedAtMs
        check.unanswered += 1
      }
      check.askAtMs = this.#now() + (answer === 'heard' ? times.intervalMs : times.pauseMs)
    })
    check.isAsking = false
    if (this.isDead(id, check.run)) declareDead(id, check.run)
  }
}

export interface ProbeHost {
  names: Pick<HostNames, 'guestSocket'>
  hostd: Pick<Hostd, 'connect' | 'isServing' | 'starts'>
  locks: Pick<KeyedMutex, 'isLocked'>
  space: { readonly isFull: boolean }
  connections: Pick<Connections, 'open'>
}

/** Probes a guest once; any answer counts. */
export async function probeGuest(
  { names, hostd, locks, space, connections }: ProbeHost,
  id: string,
  answerMs: number,
): Promise<GuestAnswer> {
  const isHeld = () => locks.isLocked(id) || space.isFull
  if (isHeld()) return 'unknown'
  const end = AbortSignal.timeout(answerMs)
  let isFrozen = false
  const { starts } = hostd
  let heard = () => false
  const dial = async () => {
    const socket = await connections.open(id, () => dialSocket(hostd, names.guestSocket(id), end), {
      signal: end,
      kind: 'probe',
    })
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
    const isUnasked = isServiceError(error) && isOfHost(error.cause)
    const isCutOff = isUnasked || hostd.starts !== starts || !hostd.isServing
    return isFrozen || isCutOff || isHeld() ? 'unknown' : 'silent'
  }
}

/** Whether hostd has not asked the guest: it is away, or carries as many connections as it may. */
function isOfHost(cause: unknown): boolean {
  return cause instanceof RelayUnavailable || (cause as NodeJS.ErrnoException | undefined)?.code === 'ENOBUFS'
}
