import { createHmac } from 'node:crypto'
import { ServiceError, isServiceError } from '../errors.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import type { Log } from '../lib/log.ts'
import { assertInput } from './input.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'
import type { TxtResolver } from './ports/txt-resolver.ts'
import type { Preview } from './preview.ts'

/** The TXT record by which an organisation proves a domain. */
export interface VerificationRecord {
  name: string
  value: string
}

const recordLabel = '_atoll'
const hostnameLengthMax = 253 - `${recordLabel}.`.length
const hostnamePattern = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$/
/** Names without meaning on the internet. They can lead into the operator's own network. */
const reservedPattern = /\.(?:internal|local|localhost|localdomain|lan|home|corp|arpa)$/

/** Lower case, without a final dot. Throws `invalid_request` for other than host names, private networks, and `ownHosts`. */
export function readCustomHostname(domain: string, ownHosts: readonly string[]): string {
  const hostname = domain.toLowerCase().replace(/\.$/, '')
  assertInput(hostname.length <= hostnameLengthMax, 'domain', `must be at most ${hostnameLengthMax} characters`)
  assertInput(hostnamePattern.test(hostname), 'domain', 'must be a host name such as app.example.com')
  assertInput(!reservedPattern.test(hostname), 'domain', 'must not be a name of a private network')
  for (const own of ownHosts) {
    assertInput(hostname !== own && !hostname.endsWith(`.${own}`), 'domain', `must not be ${own} or lie under it`)
  }
  return hostname
}

/** Domains with a timer, of all organisations together. Others are looked up when a client lists or declares them. */
const watchedMax = 10_000
const intervalMsMax = 10 * 60_000
/** Two days and some hours, at the longest interval. */
const checksMax = 320

interface DomainVerificationContext {
  store: SandboxStore
  resolver: TxtResolver
  secret: string
  log: Log
  /** Before the first timed check of a domain (up to twice as long); doubled before each further one. No lookup is more frequent. */
  intervalMs: number
  /** How long an answer waits for a lookup. A later result still counts. */
  answerWaitMs: number
}

/** A preview with a custom host name. */
type Claim = Preview & { customHostname: string }

/**
 * Verifies claims, which are previews with a custom host name:
 *
 *     unverified ── its record is seen ──► verified ── another organisation's record is there, its own is gone ──► unverified
 *
 * Of all claims to a name at most one is verified and serves it. An unverified claim is checked when it is declared or listed, and at
 * growing intervals; a verified one when another organisation's record appears. A claim ends with its preview.
 */
export class DomainVerification {
  readonly #context: DomainVerificationContext
  readonly #lookups: TxtLookups
  /** By id of the preview. */
  readonly #timers = new Map<string, NodeJS.Timeout>()
  readonly #running = new Set<Promise<unknown>>()
  #isClosed = false

  constructor(context: DomainVerificationContext) {
    this.#context = context
    this.#lookups = new TxtLookups(context.resolver, context.intervalMs)
  }

  /** Resumes the timers of an earlier process. */
  async start(): Promise<void> {
    for (const preview of await this.#context.store.unverifiedPreviews(watchedMax)) this.watch(preview)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const timer of this.#timers.values()) clearTimeout(timer)
    this.#timers.clear()
    await this.#lookups.close()
    await Promise.all(this.#running)
  }

  /** Each organisation has its own value, so a stale record proves nothing for another one. It does not depend on the preview. */
  record(orgId: string, hostname: string): VerificationRecord {
    const hmac = createHmac('sha256', this.#context.secret).update(`custom domain\0${orgId}\n${hostname}`)
    return { name: `${recordLabel}.${hostname}`, value: `atoll-verification=${hmac.digest('hex')}` }
  }

  /** Throws `conflict` when another organisation serves the host name, unless only this organisation's record is in DNS. */
  async assertFree(orgId: string, hostname: string): Promise<void> {
    const holder = await this.#context.store.previewByHostname(hostname)
    if (holder === undefined || holder.orgId === orgId || !(await this.#isAlive(holder))) return
    const record = this.record(orgId, hostname)
    const texts = await this.#lookups.lookUp(record.name, orgId)
    if (texts?.includes(record.value) && !this.#hasRecord(holder, texts)) return
    throw new ServiceError(
      'conflict',
      `this domain is taken by another preview. It is free when the TXT record ${record.name} has the value of ` +
        '`verification` and no other that begins with "atoll-verification="',
      { details: { field: 'domain', verification: record } },
    )
  }

  /** Looks up the records of these previews; waits a moment for the results. */
  async check(previews: readonly Preview[]): Promise<void> {
    const unverified = previews.filter(isUnverified)
    if (unverified.length === 0) return
    const checks = unverified.map((claim) => this.#run(claim, () => this.#verify(claim)))
    await withTimeout(this.#context.answerWaitMs, Promise.all(checks))
  }

  /** Checks this preview by timer until it is verified or gone. */
  watch(preview: Preview): void {
    if (!isUnverified(preview)) return
    clearTimeout(this.#timers.get(preview.id))
    this.#timers.delete(preview.id)
    if (this.#timers.size < watchedMax) this.#checkLater(preview, 1)
  }

  #checkLater(claim: Claim, checks: number): void {
    if (this.#isClosed || checks > checksMax) return
    const dueMs = Math.min(this.#context.intervalMs * 2 ** (checks - 1), intervalMsMax)
    // Spread the checks that a start of the server begins: all at once would pass the lookup bounds, always with the same ones first.
    const spreadMs = dueMs * Math.random()
    const check = async (): Promise<void> => {
      this.#timers.delete(claim.id)
      let isOver = false
      try {
        isOver = await this.#isOver(claim)
      } finally {
        // A new declaration in between has set a timer of its own.
        if (!isOver && !this.#timers.has(claim.id)) this.#checkLater(claim, checks + 1)
      }
    }
    this.#timers.set(claim.id, setTimeout(() => void this.#run(claim, check), dueMs + spreadMs).unref())
  }

  /** Whether the claim needs no further check. */
  async #isOver({ id, sandboxId, port, customHostname }: Claim): Promise<boolean> {
    const preview = await this.#context.store.preview(sandboxId, port)
    if (preview?.id !== id || preview.customHostname !== customHostname || !isUnverified(preview)) return true
    return !(await this.#isAlive(preview)) || (await this.#verify(preview))
  }

  /** True when the preview is verified now. */
  async #verify(claim: Claim): Promise<boolean> {
    const { store, log } = this.#context
    const { id, orgId, sandboxId, customHostname: hostname } = claim
    const texts = await this.#lookups.lookUp(this.record(orgId, hostname).name, orgId)
    if (texts === undefined || !this.#hasRecord(claim, texts)) return false
    const holder = await store.previewByHostname(hostname)
    if (holder?.id === id) return true
    if (holder !== undefined && this.#hasRecord(holder, texts) && (await this.#isAlive(holder))) return false
    const isVerified = await store.verifyPreview(claim, new Date(), holder)
    if (isVerified) log.info({ hostname, orgId, sandboxId, orgIdBefore: holder?.orgId }, 'a domain is verified')
    return isVerified
  }

  /** A verified preview outlives its sandbox until the purge. */
  async #isAlive({ sandboxId }: Preview): Promise<boolean> {
    const sandbox = await this.#context.store.sandbox(sandboxId)
    return sandbox !== undefined && sandbox.status !== 'stopped'
  }

  #hasRecord({ orgId, customHostname = '' }: Preview, texts: readonly string[]): boolean {
    return texts.includes(this.record(orgId, customHostname).value)
  }

  /** Runs work that `close` waits for. The next check retries a failure. */
  async #run({ customHostname }: Claim, work: () => Promise<unknown>): Promise<void> {
    const running = work().catch((error: unknown) => {
      // Another claim was verified in between.
      if (isServiceError(error, 'conflict')) return
      this.#context.log.warn({ err: error, hostname: customHostname }, 'a domain could not be checked')
    })
    this.#running.add(running)
    await running
    this.#running.delete(running)
  }
}

function isUnverified(preview: Preview): preview is Claim {
  return preview.customHostname !== undefined && preview.verifiedAt === undefined
}

/** Lookups at a time, by organisation. A lookup beyond them is refused; the caller asks again later. */
const lookupPermits = { permitsPerKey: 8, permits: 64 }
/** Names whose last answer is remembered. */
const answersMax = 1000

type Texts = readonly string[] | undefined

/** Looks up TXT records of names that tenants choose. Answers are cached, lookups are bounded, and no caller waits in a queue. */
class TxtLookups {
  readonly #resolver: TxtResolver
  readonly #freshMs: number
  readonly #running = new Map<string, Promise<Texts>>()
  readonly #permits = new Semaphore(lookupPermits)
  /** In order of lookup: the oldest is evicted first. */
  readonly #answers = new Map<string, { texts: Texts; untilMs: number }>()
  readonly #closing = new AbortController()

  /** An answer, also an empty or failed one, is cached for `freshMs`. */
  constructor(resolver: TxtResolver, freshMs: number) {
    this.#resolver = resolver
    this.#freshMs = freshMs
  }

  /** See `TxtResolver.resolveTxt`; undefined when the answer is unknown. */
  async lookUp(name: string, orgId: string): Promise<Texts> {
    const answer = this.#answers.get(name)
    if (answer !== undefined && answer.untilMs > performance.now()) return answer.texts
    const running = this.#running.get(name)
    if (running !== undefined) return await running
    const release = this.#closing.signal.aborted ? undefined : this.#permits.tryAcquire({ key: orgId })
    if (release === undefined) return undefined
    const lookup = this.#resolver.resolveTxt(name, this.#closing.signal).catch(() => undefined)
    this.#running.set(name, lookup)
    try {
      const texts = await lookup
      this.#remember(name, texts)
      return texts
    } finally {
      this.#running.delete(name)
      release()
    }
  }

  /** Ends running lookups and refuses further ones. */
  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.all(this.#running.values())
  }

  #remember(name: string, texts: Texts): void {
    this.#answers.delete(name)
    const [oldest] = this.#answers.keys()
    if (this.#answers.size >= answersMax && oldest !== undefined) this.#answers.delete(oldest)
    this.#answers.set(name, { texts, untilMs: performance.now() + this.#freshMs })
  }
}
