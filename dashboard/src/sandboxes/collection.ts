import type { EventInfo, SandboxInfo } from 'atoll-sdk'
import { pause } from '../lib/pause.ts'

/** Events come in bursts; a sandbox is read once for a burst. */
const burstMs = 150
const drawnEveryMs = 100
const readsAtOnceMax = 4
/** With more sandboxes to read than this the list is cheaper. */
const readsQueuedMax = 40
/** However much happens, the list is read no more often. */
const loadPauseMs = 3000

/** Events that leave a sandbox as the list shows it. */
const silent: ReadonlySet<EventInfo['type']> = new Set([
  'sandbox.egress.denied',
  'sandbox.preview_url.changed',
  'sandbox.checkpoint.created',
])

/** Where the collection reads. */
export interface SandboxSource {
  /** All that are not stopped, newest first, page by page. */
  list(): AsyncIterable<SandboxInfo>
  /** Undefined for one that does not exist. */
  read(id: string): Promise<SandboxInfo | undefined>
}

export interface SandboxesView {
  /** Newest first, those that are stopped left out. */
  rows: readonly SandboxInfo[]
  /** Pages are still to come, for the first time. */
  isLoading: boolean
  /** Why the list could not be read. What is shown may be old. */
  error: unknown
}

interface Entry {
  info: SandboxInfo
  /** Its place in the list; those that came after the list was read are below zero. */
  rank: number
}

/**
 * All sandboxes of the organisation. The list is read page by page and shown as it comes; after that an event reads the sandbox that it is about and
 * no other. What was read for an event wins over the list that was being read meanwhile.
 */
export class SandboxCollection {
  readonly #source: SandboxSource
  readonly #entries = new Map<string, Entry>()
  readonly #listeners = new Set<() => void>()
  readonly #queue = new Set<string>()
  readonly #reading = new Set<string>()
  /** Read or gone since the list was begun. */
  #touched = new Set<string>()
  #firstRank = 0
  #isLoading = false
  #isStale = false
  #isOpen = false
  #view: SandboxesView = { rows: [], isLoading: true, error: undefined }
  #burst: ReturnType<typeof setTimeout> | undefined
  #drawing: ReturnType<typeof setTimeout> | undefined

  constructor(source: SandboxSource) {
    this.#source = source
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  readonly view = (): SandboxesView => this.#view

  /** Begins to be kept up by `take`; the function that it returns ends that. What is known stays for the next time. */
  open(): () => void {
    this.#isOpen = true
    this.load()
    return () => {
      this.#isOpen = false
      this.#queue.clear()
    }
  }

  take({ type, sandboxId, subject }: EventInfo): void {
    if (!type.startsWith('sandbox.') || silent.has(type)) return
    const id = sandboxId ?? subject
    if (type === 'sandbox.stopped') this.#remove(id)
    else this.refresh(id)
  }

  /** Reads a sandbox anew, soon. */
  refresh(id: string): void {
    this.#queue.add(id)
    if (this.#burst !== undefined) return
    this.#burst = setTimeout(() => {
      this.#burst = undefined
      this.#drain()
    }, burstMs)
  }

  put(info: SandboxInfo): void {
    const { sandboxID: id } = info
    this.#touched.add(id)
    if (info.status === 'stopped') {
      this.#remove(id)
      return
    }
    this.#entries.set(id, { info, rank: this.#entries.get(id)?.rank ?? (this.#firstRank -= 1) })
    this.#draw()
  }

  /** Reads the list anew; while it is being read, once more after that. */
  load(): void {
    this.#isStale = true
    if (!this.#isLoading) void this.#loadWhileStale()
  }

  async #loadWhileStale(): Promise<void> {
    this.#isLoading = true
    while (this.#isStale && this.#isOpen) {
      this.#isStale = false
      try {
        await this.#read()
        this.#view = { ...this.#view, isLoading: false, error: undefined }
      } catch (error) {
        this.#view = { ...this.#view, isLoading: false, error }
      }
      this.#draw()
      await pause(loadPauseMs)
    }
    this.#isLoading = false
  }

  async #read(): Promise<void> {
    this.#touched = new Set()
    const seen = new Set<string>()
    for await (const info of this.#source.list()) {
      const id = info.sandboxID
      const known = this.#entries.get(id)
      // One that is touched and unknown is gone.
      if (!this.#touched.has(id)) this.#entries.set(id, { info, rank: seen.size })
      else if (known !== undefined) known.rank = seen.size
      seen.add(id)
      this.#draw()
    }
    for (const id of this.#entries.keys()) if (!seen.has(id) && !this.#touched.has(id)) this.#entries.delete(id)
  }

  #drain(): void {
    if (this.#queue.size > readsQueuedMax) {
      this.#queue.clear()
      this.load()
      return
    }
    for (const id of this.#queue) {
      if (this.#reading.size >= readsAtOnceMax) return
      // Two answers about one sandbox could come in the wrong order.
      if (this.#reading.has(id)) continue
      this.#queue.delete(id)
      this.#reading.add(id)
      void this.#readOne(id).finally(() => {
        this.#reading.delete(id)
        this.#drain()
      })
    }
  }

  async #readOne(id: string): Promise<void> {
    try {
      const info = await this.#source.read(id)
      if (info === undefined) this.#remove(id)
      else this.put(info)
    } catch {
      // The list says why, if that fails too.
      this.load()
    }
  }

  #remove(id: string): void {
    this.#queue.delete(id)
    this.#touched.add(id)
    this.#entries.delete(id)
    this.#draw()
  }

  #draw(): void {
    if (this.#drawing !== undefined) return
    this.#drawing = setTimeout(() => {
      this.#drawing = undefined
      const entries = [...this.#entries.values()].toSorted((one, other) => one.rank - other.rank)
      this.#view = { ...this.#view, rows: entries.map(({ info }) => info) }
      for (const listener of this.#listeners) listener()
    }, drawnEveryMs)
  }
}
