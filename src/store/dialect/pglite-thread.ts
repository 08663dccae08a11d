import { Worker } from 'node:worker_threads'
import { ServiceError } from '../../errors.ts'
import type { MaintenanceLimits } from './pglite-maintenance.ts'

/**
 * JavaScript's memory of the thread, in MiB: several times the largest statement with its rows. PostgreSQL's own memory comes on
 * top and grows to at most 2 GiB.
 */
const heapMbMax = 1024

export interface PgliteWorkerData {
  folder: string
  maintenance?: MaintenanceLimits
}

export interface PgliteThreadOptions {
  /** Called once when the thread dies after its start, after all pending calls were rejected. */
  died?: (error: Error) => void
  maintenance?: MaintenanceLimits
  heapMbMax?: number
}

interface PgliteRows {
  rows: unknown[]
  affectedRows: number
}

type RequestFields = PgliteRequest extends infer Each ? (Each extends unknown ? Omit<Each, 'id'> : never) : never

/**
 * An embedded database in a worker thread.
 *
 *     starting ── ready ──► open ── close ──► closed
 *        │                   └── the thread dies ──► dead
 *        └── the thread dies ──► the start throws
 *
 * Keeps the process alive only while a call runs. Every call on a dead thread throws `unavailable`.
 */
export class PgliteThread {
  readonly #worker: Worker
  readonly #calls = new Map<number, PromiseWithResolvers<PgliteRows>>()
  readonly #started = Promise.withResolvers<void>()
  readonly #died: (error: Error) => void
  #lastId = 0
  #state: 'starting' | 'open' | 'closed' | 'dead' = 'starting'

  private constructor(folder: string, options: PgliteThreadOptions) {
    const data: PgliteWorkerData = { folder }
    if (options.maintenance !== undefined) data.maintenance = options.maintenance
    this.#died = options.died ?? (() => undefined)
    this.#worker = new Worker(new URL('./pglite-worker.ts', import.meta.url), {
      name: 'database',
      workerData: data,
      resourceLimits: { maxOldGenerationSizeMb: options.heapMbMax ?? heapMbMax },
    })
    this.#worker.on('message', (answer: PgliteAnswer) => this.#receive(answer))
    this.#worker.on('messageerror', (error) => this.#fail(error))
    this.#worker.on('error', (error) => this.#fail(error))
    this.#worker.on('exit', (status) => this.#fail(new Error(`its thread ended with status ${status}`)))
  }

  /** Opens the database of a folder. Creates one in an empty folder. */
  static async open(folder: string, options: PgliteThreadOptions = {}): Promise<PgliteThread> {
    const thread = new PgliteThread(folder, options)
    await thread.#started.promise
    return thread
  }

  async call(fields: RequestFields): Promise<PgliteRows> {
    if (this.#state !== 'open') throw gone()
    const id = ++this.#lastId
    const call = Promise.withResolvers<PgliteRows>()
    this.#calls.set(id, call)
    if (this.#calls.size === 1) this.#worker.ref()
    try {
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a worker thread has none
      this.#worker.postMessage({ id, ...fields })
      return await call.promise
    } finally {
      this.#calls.delete(id)
      if (this.#calls.size === 0) this.#worker.unref()
    }
  }

  /** Throws `unavailable` once the thread has died. */
  check(): void {
    if (this.#state === 'dead') throw gone()
  }

  /** Waits for the calls in flight. */
  async close(): Promise<void> {
    if (this.#state !== 'open') return
    await this.call({ kind: 'close' })
    this.#state = 'closed'
    await this.#worker.terminate()
  }

  #receive(answer: PgliteAnswer): void {
    switch (answer.kind) {
      case 'ready':
        this.#state = 'open'
        this.#worker.unref()
        this.#started.resolve()
        break
      case 'rows':
        this.#calls.get(answer.id)?.resolve({ rows: answer.rows, affectedRows: answer.affectedRows })
        break
      case 'failed':
        this.#calls.get(answer.id)?.reject(new EmbeddedDatabaseError(answer.error))
        break
      case 'broken':
        this.#fail(new Error(answer.why))
        break
    }
  }

  #fail(error: Error): void {
    if (this.#state === 'closed' || this.#state === 'dead') return
    const wasOpen = this.#state === 'open'
    this.#state = 'dead'
    void this.#worker.terminate()
    for (const call of this.#calls.values()) call.reject(gone(error))
    this.#started.reject(error)
    if (wasOpen) this.#died(error)
  }
}

function gone(cause?: Error): ServiceError {
  return new ServiceError('unavailable', 'the embedded database has ended', { cause })
}

/**
 * The messages between the main thread and the thread of the embedded database:
 *
 *     main                                    worker
 *       ◄──────────────────────── ready ────────
 *       ── request {id, …} ────────────────────►
 *       ◄──────────── rows | failed {id, …} ────   one per request, in the order of the requests
 *       ◄──────────────────── broken {why} ─────   the last one
 *
 * Rows carry parsed values, dates and JSON included: their structured clone costs the main thread less than parsing text.
 */

export type PgliteRequest = { id: number } & (
  | { kind: 'query'; sql: string; parameters: readonly unknown[] }
  | { kind: 'begin' | 'commit' | 'rollback' | 'close' }
)

export type PgliteAnswer =
  | { kind: 'ready' }
  | { kind: 'rows'; id: number; rows: unknown[]; affectedRows: number }
  | { kind: 'failed'; id: number; error: ErrorFields }
  | { kind: 'broken'; why: string }

/** Fields of a PostgreSQL error (its manual, section 55.8). Values of the statement are left out: they do not belong in a log. */
const fieldNames = ['severity', 'code', 'detail', 'hint', 'schema', 'table', 'column', 'constraint', 'routine'] as const

type FieldName = (typeof fieldNames)[number]

type ErrorFields = { message: string } & Partial<Record<FieldName, string>>

/** A structured clone of an error would drop everything but its message. */
export function fieldsOf(error: unknown): ErrorFields {
  if (!(error instanceof Error)) return { message: String(error) }
  const found = error as Error & Partial<Record<FieldName, unknown>>
  const fields: ErrorFields = { message: error.message }
  for (const name of fieldNames) {
    const value = found[name]
    if (typeof value === 'string') fields[name] = value
  }
  return fields
}

/** An error of the database, with the fields that `pg` gives its errors. */
export class EmbeddedDatabaseError extends Error {
  constructor({ message, ...fields }: ErrorFields) {
    super(message)
    this.name = 'EmbeddedDatabaseError'
    Object.assign(this, fields)
  }
}
