import { noTokens, type TokenUsage } from '../lib/model-price.ts'
import { isRecord } from '../lib/json.ts'
import type { ModelApi } from './agent.ts'
import { mergedUsage, usageOf } from './answer-usage.ts'

/** Longest line of an event stream, or whole JSON answer, that is parsed. Beyond it the usage is estimated. */
const heldBytesMax = 8 * 1024 * 1024

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
  #held: Buffer[] = []
  #heldBytes = 0
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
    for (let newline = chunk.indexOf(10); newline !== -1; newline = chunk.indexOf(10, start)) {
      this.#hold(chunk.subarray(start, newline))
      start = newline + 1
      this.#line()
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
    this.#heldBytes += part.length
    if (this.#heldBytes > heldBytesMax) this.#held = []
    else if (part.length > 0) this.#held.push(part)
  }

  #line(): void {
    const bytes = this.#heldBytes
    const isWhole = bytes <= heldBytesMax
    const text = isWhole ? Buffer.concat(this.#held, bytes).toString('utf8') : ''
    this.#held = []
    this.#heldBytes = 0
    const json = this.#isEventStream ? (/^data:(.*)$/s.exec(text)?.[1] ?? '').trim() : text
    if (isWhole && (json === '' || json === '[DONE]')) return
    try {
      this.#take(JSON.parse(json))
    } catch {
      // Foreign, torn or too long: the whole line counts as text.
      this.#generated(bytes)
    }
  }

  #take(value: unknown): void {
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
    if (this.#isEventStream)
      this.#generated(textBytes(wire === 'openai-completions' ? event['choices'] : event['delta']))
    else if (!this.#hasFailed) this.#generated(textBytes(value))
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

/** Fields of an answer that the model did not write. */
const framing = new Set(['type', 'role', 'stop_reason', 'finish_reason'])

/** Bytes of text in a part of an answer, whatever the names of its fields. */
function textBytes(value: unknown): number {
  if (typeof value === 'string') return Buffer.byteLength(value)
  if (typeof value !== 'object' || value === null) return 0
  let bytes = 0
  for (const [key, part] of Object.entries(value)) if (!framing.has(key)) bytes += textBytes(part)
  return bytes
}
