import type { Attachment, AttachmentEvent, AttachOptions, ProcessInfo } from '../../sandbox/index.ts'

const frameBytesDefault = 200

/** A process as the guest keeps it: a log that loses only what was acknowledged, attachments that come and go. */
export class FakeProcess {
  readonly id: string
  readonly envs: Record<string, string>
  readonly argv: string[]
  /** Offsets in it are those of the log; what was acknowledged is gone. */
  log: Buffer = Buffer.alloc(0)
  acknowledged = 0
  exitCode: number | undefined
  onLine: (line: string) => void = () => {}
  /** False for a signal that the process ignores. */
  onSignal: (signal: number) => boolean = () => true
  readonly signals: number[] = []
  frameBytes = frameBytesDefault
  readonly #attachments = new Set<FakeAttachment>()
  #streams: { end: number; stream: 'stdout' | 'stderr' }[] = []
  #input = ''

  constructor(id: string, argv: string[], envs: Record<string, string>) {
    this.id = id
    this.argv = argv
    this.envs = envs
  }

  get info(): ProcessInfo {
    const running = this.exitCode === undefined
    return { id: this.id, pid: 7, argv: this.argv, running, startedAt: '', attachedClients: 0, pty: false }
  }

  get attachmentCount(): number {
    return this.#attachments.size
  }

  write(text: string | Buffer, stream: 'stdout' | 'stderr' = 'stdout'): void {
    if (this.exitCode !== undefined) return
    this.log = Buffer.concat([this.log, Buffer.from(text)])
    this.#streams.push({ end: this.log.length, stream })
    for (const attachment of this.#attachments) attachment.wake()
  }

  input(data: Uint8Array): void {
    if (this.exitCode !== undefined) return
    const lines = (this.#input + Buffer.from(data).toString()).split('\n')
    this.#input = lines.pop() ?? ''
    for (const line of lines) if (line !== '') this.onLine(line)
  }

  signal(signal: number): void {
    if (this.exitCode !== undefined) return
    this.signals.push(signal)
    if (signal === 9 || this.onSignal(signal)) this.exit(128 + signal)
  }

  exit(exitCode: number): void {
    this.exitCode ??= exitCode
    for (const attachment of this.#attachments) attachment.wake()
  }

  attach({ offset = 0 }: AttachOptions): Attachment {
    const attachment = new FakeAttachment(this, Math.min(Math.max(offset, this.acknowledged), this.log.length), () =>
      this.#attachments.delete(attachment),
    )
    this.#attachments.add(attachment)
    return attachment
  }

  /** Breaks every attachment, as a hibernation or a fault of the machine does. */
  breakAttachments(): void {
    for (const attachment of this.#attachments) attachment.break()
  }

  /** The next piece of the log at an offset, of one stream. */
  piece(offset: number): { stream: 'stdout' | 'stderr'; data: Buffer } | undefined {
    const written = this.#streams.find(({ end }) => end > offset)
    if (!written) return undefined
    return { stream: written.stream, data: this.log.subarray(offset, Math.min(written.end, offset + this.frameBytes)) }
  }
}

class FakeAttachment implements Attachment {
  readonly #process: FakeProcess
  readonly #onClose: () => void
  #offset: number
  #state: 'open' | 'closed' | 'broken' = 'open'
  #wake = () => {}

  constructor(process: FakeProcess, offset: number, onClose: () => void) {
    this.#process = process
    this.#offset = offset
    this.#onClose = onClose
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<AttachmentEvent> {
    const end = this.#process.log.length
    let replayed = false
    for (;;) {
      if (this.#state === 'broken') throw new Error('the connection broke')
      if (this.#state === 'closed') return
      if (!replayed && this.#offset >= end) {
        replayed = true
        yield { type: 'replayed', offset: this.#offset }
        continue
      }
      const piece = this.#process.piece(this.#offset)
      if (piece) {
        const offset = this.#offset
        this.#offset += piece.data.length
        yield { type: 'output', offset, ...piece, headed: Buffer.concat([Buffer.of(0), piece.data]) }
        continue
      }
      if (this.#process.exitCode !== undefined) {
        yield { type: 'exit', exitCode: this.#process.exitCode }
        return
      }
      await new Promise<void>((resolve) => (this.#wake = resolve))
    }
  }

  wake(): void {
    this.#wake()
  }

  break(): void {
    this.#state = 'broken'
    this.#onClose()
    this.#wake()
  }

  async write(data: Uint8Array): Promise<void> {
    if (this.#state !== 'open') throw new Error('the connection is closed')
    this.#process.input(data)
  }

  async end(): Promise<void> {}

  async acknowledge(offset: number): Promise<void> {
    if (this.#state === 'open') this.#process.acknowledged = Math.max(this.#process.acknowledged, offset)
  }

  close(): void {
    if (this.#state === 'open') this.#state = 'closed'
    this.#onClose()
    this.#wake()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close()
  }
}
