import { ServiceError, isServiceError } from '../errors.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import type { Log } from '../lib/log.ts'
import { verificationRecord } from './custom-domain.ts'
import type { VerificationRecord } from './custom-domain.ts'
import type { Preview } from './preview.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'
import { TxtLookups } from './txt-lookups.ts'
import type { TxtResolver } from './txt-resolver.ts'

/** How long an answer waits for a lookup; what it finds later counts as well. */
const answerWaitMs = 2000
/** Domains that are looked at again by themselves, all organisations together; the others when somebody asks for them. */
const watchedMax = 10_000
const intervalMsMax = 10 * 60_000
/** Two days and some hours, at the longest interval. */
const checksMax = 320

interface DomainProofsDeps {
  store: SandboxStore
  resolver: TxtResolver
  secret: string
  log: Log
  /**
   * Before the first check of a domain by itself, or up to twice as long; before each one after, twice as long. No name is looked up
   * more often.
   */
  intervalMs: number
}

/** A preview with a custom host name. */
type Claim = Preview & { customHostname: string }

/**
 * Finds out whether domains belong to who declared them. A claim is a preview with a custom host name:
 *
 *     unverified ── its record is seen ──► verified ── another organisation's record is there, its own is gone ──► unverified
 *
 * Any number of organisations may claim a name; one at most is verified, and serves it. A claim is looked at when it is made,
 * declared again or listed, and meanwhile at growing intervals; it ends with its preview. Verified ones are not looked at until
 * somebody else's record is there.
 */
export class DomainProofs {
  readonly #deps: DomainProofsDeps
  readonly #lookups: TxtLookups
  /** By id of the preview. */
  readonly #timers = new Map<string, NodeJS.Timeout>()
  readonly #running = new Set<Promise<unknown>>()
  #isClosed = false

  constructor(deps: DomainProofsDeps) {
    this.#deps = deps
    this.#lookups = new TxtLookups(deps.resolver, deps.intervalMs)
  }

  /** Goes on with what an earlier process had begun. */
  async start(): Promise<void> {
    for (const preview of await this.#deps.store.unverifiedPreviews(watchedMax)) this.watch(preview)
  }

  /** Looks at nothing any more. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const timer of this.#timers.values()) clearTimeout(timer)
    this.#timers.clear()
    await this.#lookups.close()
    await Promise.all(this.#running)
  }

  record(orgId: string, hostname: string): VerificationRecord {
    return verificationRecord(this.#deps.secret, orgId, hostname)
  }

  /**
   * Throws `conflict` when another organisation serves the host name, with the record that would prove it to be this one's, and
   * unless that record is there already and the other's is gone.
   */
  async assertFree(orgId: string, hostname: string): Promise<void> {
    const holder = await this.#deps.store.previewByHostname(hostname)
    if (holder === undefined || holder.orgId === orgId || !(await this.#isAlive(holder))) return
    const record = this.record(orgId, hostname)
    const texts = await this.#lookups.texts(record.name, orgId)
    if (texts?.includes(record.value) && !this.#isShown(holder, texts)) return
    throw new ServiceError(
      'conflict',
      `this domain is taken by another preview. It is free when the TXT record ${record.name} has the value of ` +
        '`verification` and no other that begins with "atoll-verification="',
      { details: { field: 'domain', verification: record } },
    )
  }

  /** Looks for the records of these previews; returns when it has, or after a moment. */
  async look(previews: readonly Preview[]): Promise<void> {
    const unverified = previews.filter(isUnverified)
    if (unverified.length === 0) return
    await withTimeout(answerWaitMs, Promise.all(unverified.map((claim) => this.#run(claim, () => this.#verify(claim)))))
  }

  /** Looks for the record of this preview from now on, until it is seen or the preview has gone. */
  watch(preview: Preview): void {
    if (!isUnverified(preview)) return
    clearTimeout(this.#timers.get(preview.id))
    this.#timers.delete(preview.id)
    if (this.#timers.size < watchedMax) this.#checkLater(preview, 1)
  }

  #checkLater(claim: Claim, checks: number): void {
    if (this.#isClosed || checks > checksMax) return
    const dueMs = Math.min(this.#deps.intervalMs * 2 ** (checks - 1), intervalMsMax)
    // Those that a start finds come apart: together they would be more than are looked up at a time, always the same ones first.
    const spreadMs = dueMs * Math.random()
    const check = async (): Promise<void> => {
      this.#timers.delete(claim.id)
      let isOver = false
      try {
        isOver = await this.#isOver(claim)
      } finally {
        // Declared again meanwhile, it has a timer of its own.
        if (!isOver && !this.#timers.has(claim.id)) this.#checkLater(claim, checks + 1)
      }
    }
    this.#timers.set(claim.id, setTimeout(() => void this.#run(claim, check), dueMs + spreadMs).unref())
  }

  /** Whether there is nothing more to look for. */
  async #isOver({ id, sandboxId, port, customHostname }: Claim): Promise<boolean> {
    const preview = await this.#deps.store.preview(sandboxId, port)
    if (preview?.id !== id || preview.customHostname !== customHostname || !isUnverified(preview)) return true
    return !(await this.#isAlive(preview)) || (await this.#verify(preview))
  }

  /** Whether the preview is verified now. */
  async #verify(claim: Claim): Promise<boolean> {
    const { store, log } = this.#deps
    const { id, orgId, sandboxId, customHostname: hostname } = claim
    const texts = await this.#lookups.texts(this.record(orgId, hostname).name, orgId)
    if (texts === undefined || !this.#isShown(claim, texts)) return false
    const holder = await store.previewByHostname(hostname)
    if (holder?.id === id) return true
    if (holder !== undefined && this.#isShown(holder, texts) && (await this.#isAlive(holder))) return false
    const isVerified = await store.verifyPreview(claim, new Date(), holder)
    if (isVerified) log.info({ hostname, orgId, sandboxId, orgIdBefore: holder?.orgId }, 'a domain is verified')
    return isVerified
  }

  /** The sandbox of a preview that is verified may have stopped for good. */
  async #isAlive({ sandboxId }: Preview): Promise<boolean> {
    const sandbox = await this.#deps.store.sandbox(sandboxId)
    return sandbox !== undefined && sandbox.status !== 'stopped'
  }

  #isShown({ orgId, customHostname = '' }: Preview, texts: readonly string[]): boolean {
    return texts.includes(this.record(orgId, customHostname).value)
  }

  /** Work that `close` waits for. What fails is tried again by the next who looks. */
  async #run({ customHostname }: Claim, work: () => Promise<unknown>): Promise<void> {
    const running = work().catch((error: unknown) => {
      // Another one was verified in between.
      if (isServiceError(error, 'conflict')) return
      this.#deps.log.warn({ err: error, hostname: customHostname }, 'a domain was not looked at')
    })
    this.#running.add(running)
    await running
    this.#running.delete(running)
  }
}

function isUnverified(preview: Preview): preview is Claim {
  return preview.customHostname !== undefined && preview.verifiedAt === undefined
}
