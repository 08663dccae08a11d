import { noTokens, type TokenUsage } from '../lib/model-price.ts'
import { isRecord } from '../lib/json.ts'
import type { ModelApi } from './agent.ts'
import { AnswerScanner, framing } from './answer-scanner.ts'
import { mergedUsage, usageOf } from './answer-usage.ts'

/** A longer line of an event stream, or whole JSON answer, is read as it comes: to parse it at its end would hold up everything else. */
const heldBytesMax = 8 * 1024
/** Lines of one answer that are no JSON. After them none is parsed any more, and all count as text. */
const foreignLinesMax = 100
/** Before the JSON of an event. */
const prefix = Buffer.from('data:')
const newline = 10

/** A token of text or code is seldom shorter. */
const bytesPerToken = 3

/** A silent model may be thinking, and thoughts are billed. Few models think faster. */
const thoughtTokensPerSecond = 100

/** A longer pause between two parts of an answer counts as silence. */
const speakingPauseMs = 1000

export interface AnswerUsage extends TokenUsage {
  /** The answer did not report all of it: a guess, and rather too high. */
  estimated: boolean
}

/** Estimates the usage of a call from the size of its request, the silence of the model, and the text that it wrote. */
export function estimatedUsage(requestBytes: number, silentMs: number, writtenBytes = 0): AnswerUsage {
  return {
    ...noTokens(),
    inputTokens: Math.ceil(requestBytes / bytesPerToken),
    outputTokens: Math.ceil((silentMs / 1000) * thoughtTokensPerSecond) + Math.ceil(writtenBytes / bytesPerToken),
    estimated: true,
  }
}

/** The call that an answer belongs to. */
export interface AskedCall {
  wire: ModelApi
  requestBytes: number
  /** By `performance.now()`. */
  askedAtMs: number
}

/** Reads the usage from a passing answer, in bounded memory. It never changes or delays a byte, and never throws. */
export class UsageTap {
  readonly #call: AskedCall
  readonly #isEventStream: boolean
  readonly #now: () => number
  /** The current line, unless it is long. */
  readonly #held = Buffer.allocUnsafe(heldBytesMax)
  #heldBytes = 0
  /** Scanner of the current line when it is long. `foreign`: the line is no event. */
  #long: AnswerScanner | 'foreign' | undefined
  #foreignLines = 0
  #textBytes = 0
  #lastTextAtMs: number
  /** All pauses of the model before a part of its answer, added up. */
  #silentMs = 0
  #found: TokenUsage | undefined
  #hasStopped = false
  #hasFailed = false
  #isComplete = false

  constructor(call: AskedCall, contentType: string, now: () => number = () => performance.now()) {
    this.#call = call
    this.#isEventStream = contentType.toLowerCase().includes('text/event-stream')
    this.#now = now
    this.#lastTextAtMs = call.askedAtMs
  }

  push(chunk: Buffer): void {
    if (!this.#isEventStream) {
      this.#hold(chunk)
      return
    }
    let start = 0
    for (;;) {
      const isNew = this.#heldBytes === 0
      if (isNew) while (chunk[start] === newline) start++
      const end = chunk.indexOf(newline, start)
      if (end === -1) break
      // Lines that are no data are many and short.
      if (!isNew || chunk[start] === prefix[0]) {
        this.#hold(chunk.subarray(start, end))
        this.#line()
      }
      start = end + 1
    }
    this.#hold(chunk.subarray(start))
  }

  /** The usage that the answer has reported. A stream reports it before its end. */
  get reported(): AnswerUsage | undefined {
    return this.#found && this.#isComplete ? { ...this.#found, estimated: false } : undefined
  }

  /** The usage of the answer as far as it came. Call `push` no more. */
  end(): AnswerUsage {
    this.#line()
    if (this.reported) return this.reported
    const found = this.#found ?? noTokens()
    // An API that fails before it has generated anything charges nothing.
    if (this.#hasFailed && this.#textBytes === 0) return { ...found, estimated: true }
    // A slow client costs nothing, so the time after the last text is no silence of the model.
    if (this.#textBytes === 0) this.#addSilence()
    const guess = estimatedUsage(this.#call.requestBytes, this.#silentMs, this.#textBytes)
    return {
      ...(found.inputTokens > 0 ? found : guess),
      outputTokens: Math.max(found.outputTokens, guess.outputTokens),
      estimated: true,
    }
  }

  #hold(part: Buffer): void {
    const room = Math.max(0, heldBytesMax - this.#heldBytes)
    if (room > 0) this.#held.set(part.subarray(0, room), this.#heldBytes)
    this.#heldBytes += part.length
    const rest = part.subarray(room)
    if (rest.length === 0) return
    this.#long ??= this.#scanner()
    if (this.#long !== 'foreign') this.#long.push(rest)
  }

  /** Scanner for the rest of a line that has filled `#held`. */
  #scanner(): AnswerScanner | 'foreign' {
    const isEvent = this.#held.subarray(0, prefix.length).equals(prefix)
    if (this.#isEventStream && !isEvent) return 'foreign'
    const field = this.#call.wire === 'openai-completions' ? 'choices' : 'delta'
    const scanner = this.#isEventStream ? new AnswerScanner(field) : new AnswerScanner()
    scanner.push(this.#held.subarray(this.#isEventStream ? prefix.length : 0))
    return scanner
  }

  #line(): void {
    const bytes = this.#heldBytes
    const long = this.#long
    this.#heldBytes = 0
    this.#long = undefined
    if (long !== undefined) {
      const scanned = long === 'foreign' ? undefined : long.end()
      // Foreign or torn: the whole line counts as text.
      if (scanned === undefined) this.#generated(bytes)
      else this.#take(scanned.value, scanned.textBytes)
      return
    }
    const line = this.#held.subarray(0, bytes)
    if (this.#isEventStream && !line.subarray(0, prefix.length).equals(prefix)) return
    const json = line.toString('utf8', this.#isEventStream ? prefix.length : 0).trim()
    if (json === '' || json === '[DONE]') return
    if (this.#foreignLines >= foreignLinesMax) {
      this.#generated(bytes)
      return
    }
    try {
      this.#take(JSON.parse(json))
    } catch {
      this.#foreignLines++
      this.#generated(bytes)
    }
  }

  /** `writtenBytes` are those of the model's texts, where they are counted already. */
  #take(value: unknown, writtenBytes?: number): void {
    const { wire } = this.#call
    const event = isRecord(value) ? value : {}
    if (!this.#isEventStream || hasStopped(wire, event)) this.#hasStopped = true
    if (hasFailed(event)) this.#hasFailed = true
    const usage = usageOf(wire, event)
    if (usage) {
      // Anthropic reports the input first and the cumulated output later; the others report both at the end.
      this.#found = mergedUsage(this.#found, usage)
      // Usage reported while the model still writes, such as Anthropic's initial 1, is not final.
      this.#isComplete = this.#hasStopped && this.#found.inputTokens > 0 && this.#found.outputTokens > 0
    }
    const written = () => textBytes(wire === 'openai-completions' ? event['choices'] : event['delta'])
    if (this.#isEventStream) this.#generated(writtenBytes ?? written())
    else if (!this.#hasFailed) this.#generated(writtenBytes ?? textBytes(value))
  }

  #generated(bytes: number): void {
    if (bytes === 0) return
    this.#addSilence()
    this.#textBytes += bytes
  }

  /** Adds the pause since the last text: a model may think before and within its answer. */
  #addSilence(): void {
    const now = this.#now()
    const pauseMs = now - this.#lastTextAtMs
    if (pauseMs > speakingPauseMs) this.#silentMs += pauseMs
    this.#lastTextAtMs = now
  }
}

const lastResponseEvents = new Set<unknown>(['response.completed', 'response.incomplete', 'response.failed'])

/** Whether an event ends the model's text: the usage in it, or after it, is final. */
function hasStopped(wire: ModelApi, event: Record<string, unknown>): boolean {
  switch (wire) {
    case 'anthropic-messages': {
      const delta = event['delta']
      return event['type'] === 'message_delta' && isRecord(delta) && typeof delta['stop_reason'] === 'string'
    }
    case 'openai-completions': {
      const choices = Array.isArray(event['choices']) ? (event['choices'] as unknown[]) : []
      // OpenAI reports the usage in a separate event without choices.
      if (choices.length === 0) return isRecord(event['usage'])
      return choices.some((choice) => isRecord(choice) && typeof choice['finish_reason'] === 'string')
    }
    case 'openai-responses':
      return lastResponseEvents.has(event['type'])
  }
}

function hasFailed(event: Record<string, unknown>): boolean {
  return event['type'] === 'error' || event['type'] === 'response.failed' || isRecord(event['error'])
}

/** Bytes of text in a part of an answer, whatever the names of its fields. */
function textBytes(value: unknown): number {
  if (typeof value === 'string') return Buffer.byteLength(value)
  if (typeof value !== 'object' || value === null) return 0
  let bytes = 0
  for (const [key, part] of Object.entries(value)) if (!framing.has(key)) bytes += textBytes(part)
  return bytes
}
