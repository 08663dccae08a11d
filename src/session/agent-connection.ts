import type { Attachment, AttachmentEvent } from '../sandbox/index.ts'
import type { Log } from '../lib/log.ts'
import {
  type AgentCommandInput,
  type AgentEvent,
  agentEventBytesMax,
  encodeAgentLine,
  readAgentEvent,
} from '../protocol/agent.ts'
import type { AssistantDraft } from '../protocol/stream-events.ts'
import { TimeSlice } from '../lib/async/time-slice.ts'
import { LineSplitter } from '../protocol/line-splitter.ts'
import { type DraftPiece, joined } from './draft.ts'

/** Attachment events dealt with in one commit. */
const batchEventsMax = 256
/** Pieces of drafts between two other lines of the agent: at its pace more than a quarter of an hour. What is beyond counts as invalid. */
const piecesMax = 20_000
/** Characters of the end of the agent's standard error output that are logged. */
const stderrTailLength = 2000

/** One line of the agent. Invalid lines count against its bounds; the first of an attachment is reported as an `error`. */
export type AgentOutput = Exclude<AgentEvent, AssistantDraft> | { type: 'invalid' }

export interface AgentConnectionHandlers {
  /**
   * Commits what the agent said together with the offset from which the log is read after a crash. The output is acknowledged
   * only then, so that none is lost; the offset is part of the commit, so that none is taken twice.
   */
  take(output: AgentOutput[], offset: number): Promise<void>
  /** Tells what the model has written since, of an answer that comes after all that was taken. Nothing of it is kept. */
  drafted(piece: DraftPiece): void
  /** All output that was waiting is taken: from now on the state of the turn is the agent's own. */
  live(): Promise<void>
}

export type ConnectionEnd = { type: 'exited'; exitCode: number; stderr: string } | { type: 'broken' }

/**
 * One attachment to the agent process of a session.
 *
 *     replaying ──`replayed`──► live        either ──► ended (exited | broken)
 *
 * `run` reads it to its end; commands are written one after another beside it, since an agent that does not read its
 * input must not keep its output from being taken.
 */
export class AgentConnection {
  readonly #attachment: Attachment
  readonly #handlers: AgentConnectionHandlers
  readonly #log: Log
  readonly #splitter = new LineSplitter(agentEventBytesMax)
  readonly #decoder = new TextDecoder()
  #isLive = false
  #closed = false
  #warned = false
  #stderr = ''
  /** Everything before it is dealt with; a line that has begun and not ended lies behind it. */
  #offset: number
  #pendingBytes = 0
  /** Pieces of drafts since the last other line. */
  #pieces = 0
  /** Those of the batch at hand. */
  #draft: DraftPiece | undefined
  // A line that an earlier server began and could not end must not be glued to ours.
  #prefix = '\n'
  #writes: Promise<void> = Promise.resolve()

  constructor(attachment: Attachment, offset: number, handlers: AgentConnectionHandlers, { log }: { log: Log }) {
    this.#attachment = attachment
    this.#offset = offset
    this.#handlers = handlers
    this.#log = log
  }

  get isOpen(): boolean {
    return !this.#closed
  }

  /** Reads until the process or the attachment ends. Throws what a handler throws. */
  async run(): Promise<ConnectionEnd> {
    try {
      for await (const batch of batches(this.#attachment, this.#log)) {
        await this.#take(batch)
        if (this.#closed) break
        if (!this.#isLive && batch.some(({ type }) => type === 'replayed')) {
          this.#isLive = true
          await this.#handlers.live()
        }
        const exit = batch.find((event) => event.type === 'exit')
        if (exit) return { type: 'exited', exitCode: exit.exitCode, stderr: this.#stderr }
      }
      return { type: 'broken' }
    } finally {
      this.close()
      await this.#writes
    }
  }

  /**
   * Writes a command after the commands before it; `read` gets its text first. A failure ends the connection, and the next one
   * sends the command again.
   */
  send(read: () => Promise<AgentCommandInput | undefined>): void {
    this.#writes = this.#writes.then(async () => {
      if (this.#closed) return
      try {
        const command = await read()
        if (command === undefined) return
        const line = Buffer.from(this.#prefix + encodeAgentLine(command))
        this.#prefix = ''
        await this.#attachment.write(line)
      } catch (error) {
        this.#log.debug({ err: error }, 'a command did not reach the agent')
        this.close()
      }
    })
  }

  /** Runs `done` once the sandbox has taken all commands sent so far; never, when the connection ends first. */
  afterSent(done: () => void): void {
    this.#writes = this.#writes.then(() => {
      if (!this.#closed) done()
    })
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#attachment.close()
  }

  async #take(batch: readonly AttachmentEvent[]): Promise<void> {
    const before = this.#offset
    const output: AgentOutput[] = []
    for (const event of batch) {
      if (event.type !== 'output') continue
      if (event.stream === 'stderr') this.#takeStderr(event.data, event.offset)
      else await this.#takeStdout(event.data, event.offset, output)
    }
    if (this.#offset === before) return
    if (output.length > 0) await this.#handlers.take(output, this.#offset)
    const draft = this.#draft
    this.#draft = undefined
    if (draft !== undefined && this.#isLive) this.#handlers.drafted(draft)
    await this.#acknowledge()
  }

  async #takeStdout(data: Buffer, offset: number, output: AgentOutput[]): Promise<void> {
    const slice = new TimeSlice()
    for (const line of this.#splitter.split(data, offset)) {
      await slice.next()
      const parsed =
        line.type === 'line' ? await readAgentEvent(line.bytes) : { ok: false as const, reason: 'too long' }
      if (!parsed.ok) output.push(this.#reportInvalid(parsed.reason))
      else if (parsed.value.type !== 'assistant_draft') {
        this.#pieces = 0
        // It belongs to what is whole now.
        this.#draft = undefined
        output.push(parsed.value)
      } else if (this.#pieces++ < piecesMax) this.#draft = joined(this.#draft, parsed.value)
      else output.push({ type: 'invalid' })
    }
    const lastNewline = data.lastIndexOf(10)
    if (lastNewline !== -1) {
      this.#offset = offset + lastNewline + 1
      this.#pendingBytes = data.length - lastNewline - 1
    } else {
      this.#pendingBytes += data.length
    }
    // The splitter has dropped a line beyond the bound: the process must be able to go on writing it.
    if (this.#pendingBytes === 0 || this.#pendingBytes > agentEventBytesMax) this.#offset = offset + data.length
  }

  #reportInvalid(reason: string): AgentOutput {
    if (this.#warned) return { type: 'invalid' }
    this.#warned = true
    const message = `The agent wrote a line that was left out (${reason}).`
    return { type: 'error', message, code: 'agent_output_invalid', fatal: false }
  }

  #takeStderr(data: Buffer, offset: number): void {
    this.#stderr = (this.#stderr + this.#decoder.decode(data)).slice(-stderrTailLength)
    if (this.#pendingBytes === 0) this.#offset = offset + data.length
  }

  async #acknowledge(): Promise<void> {
    try {
      await this.#attachment.acknowledge(this.#offset)
    } catch (error) {
      this.#log.debug({ err: error }, 'an acknowledgement did not reach the sandbox')
      this.close()
    }
  }
}

const later = Symbol('later')

/** What has arrived by now, at most `batchEventsMax` at a time: one commit for a burst of lines. */
async function* batches(attachment: Attachment, log: Log): AsyncGenerator<AttachmentEvent[]> {
  const iterator = arrivals(attachment, log)
  try {
    let next = iterator.next()
    for (;;) {
      const first = await next
      if (first.done) return
      const batch = [first.value]
      next = iterator.next()
      while (batch.length < batchEventsMax) {
        const more = await Promise.race([next, new Promise<typeof later>((resolve) => setImmediate(resolve, later))])
        if (more === later || more.done) break
        batch.push(more.value)
        next = iterator.next()
      }
      yield batch
    }
  } finally {
    // First: the iterator may be waiting for output, and returns only when that ends.
    attachment.close()
    await iterator.return()
  }
}

/** The events of an attachment. A broken one just ends, since the caller attaches again. */
async function* arrivals(attachment: Attachment, log: Log): AsyncGenerator<AttachmentEvent, void> {
  try {
    yield* attachment
  } catch (error) {
    log.debug({ err: error }, 'the attachment to an agent broke')
  }
}
