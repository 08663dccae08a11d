import type { LocalFile } from './dropped-files.ts'
import type { Place } from './place.ts'

/** `waiting` → `sending` → `sent`, `failed` or `cancelled`. */
export interface Upload extends LocalFile {
  id: number
  place: Place
  state: 'waiting' | 'sending' | 'sent' | 'failed' | 'cancelled'
  sentBytes: number
  error?: unknown
}

export interface UploadsView {
  uploads: readonly Upload[]
  /** Of all that are not cancelled. */
  bytes: number
  sentBytes: number
  isBusy: boolean
}

export type Send = (upload: Upload, options: { signal: AbortSignal; onSent: (bytes: number) => void }) => Promise<void>

/** A browser has six connections to a server, and others need some. */
const sendingMax = 3
const drawMs = 150

/** Sends files to a sandbox, a few at a time. */
export class UploadQueue {
  readonly #send: Send
  readonly #onSent: (upload: Upload) => void
  readonly #listeners = new Set<() => void>()
  readonly #sending = new Map<number, AbortController>()
  #uploads: Upload[] = []
  #nextId = 1
  #view: UploadsView = { uploads: [], bytes: 0, sentBytes: 0, isBusy: false }
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(send: Send, onSent: (upload: Upload) => void) {
    this.#send = send
    this.#onSent = onSent
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  readonly view = (): UploadsView => this.#view

  add(files: readonly (LocalFile & { place: Place })[]): void {
    for (const file of files) {
      this.#uploads.push({ ...file, id: this.#nextId, state: 'waiting', sentBytes: 0 })
      this.#nextId += 1
    }
    this.#proceed()
  }

  cancel(id: number): void {
    const upload = this.#uploads.find((one) => one.id === id)
    if (upload?.state === 'waiting') upload.state = 'cancelled'
    this.#sending.get(id)?.abort()
    this.#draw()
  }

  cancelAll(): void {
    for (const upload of this.#uploads) if (upload.state === 'waiting') upload.state = 'cancelled'
    for (const sending of this.#sending.values()) sending.abort()
    this.#draw()
  }

  /** Cancels all, and tells nobody. */
  close(): void {
    this.cancelAll()
    clearTimeout(this.#timer)
  }

  /** Forgets those that have ended. */
  clear(): void {
    this.#uploads = this.#uploads.filter(({ state }) => state === 'waiting' || state === 'sending')
    this.#draw()
  }

  #proceed(): void {
    for (const upload of this.#uploads) {
      if (this.#sending.size >= sendingMax) break
      if (upload.state === 'waiting') void this.#sendOne(upload)
    }
    this.#draw()
  }

  async #sendOne(upload: Upload): Promise<void> {
    const sending = new AbortController()
    this.#sending.set(upload.id, sending)
    upload.state = 'sending'
    const onSent = (bytes: number) => {
      upload.sentBytes = bytes
      this.#draw()
    }
    try {
      await this.#send(upload, { signal: sending.signal, onSent })
      upload.state = 'sent'
      upload.sentBytes = upload.file?.size ?? 0
      this.#onSent(upload)
    } catch (error) {
      upload.state = sending.signal.aborted ? 'cancelled' : 'failed'
      upload.error = error
    } finally {
      // A file that was sent is held no longer.
      upload.file = upload.state === 'sent' ? undefined : upload.file
      this.#sending.delete(upload.id)
      this.#proceed()
    }
  }

  #draw(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      this.#view = viewOf(this.#uploads)
      for (const listener of this.#listeners) listener()
    }, drawMs)
  }
}

function viewOf(uploads: readonly Upload[]): UploadsView {
  let [bytes, sentBytes] = [0, 0]
  for (const { state, file, sentBytes: sent } of uploads) {
    if (state === 'cancelled') continue
    bytes += file?.size ?? sent
    sentBytes += sent
  }
  const isBusy = uploads.some(({ state }) => state === 'waiting' || state === 'sending')
  return { uploads: uploads.map((upload) => ({ ...upload })), bytes, sentBytes, isBusy }
}
