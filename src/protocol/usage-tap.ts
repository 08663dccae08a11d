import type { modelApis } from './agent.ts'

type WireName = (typeof modelApis)[number]

/** Longest line of an event stream, or whole JSON answer, that is looked into. Beyond it the usage is estimated. */
const heldBytesMax = 8 * 1024 * 1024

/** A token of text is about this many bytes. */
const bytesPerToken = 4

export interface TokenUsage {
  inputTokens: number
  outputTokens: number
}

/** Reads the usage out of an answer that passes by, in bounded memory. It never changes or delays a byte, and never throws. */
export class UsageTap {
  readonly #wire: WireName
  readonly #isEventStream: boolean
  #held: Buffer[] = []
  #heldBytes = 0
  #skipping = false
  #passedBytes = 0
  #found: TokenUsage | undefined

  constructor(wire: WireName, contentType: string) {
    this.#wire = wire
    this.#isEventStream = contentType.toLowerCase().includes('text/event-stream')
  }

  push(chunk: Buffer): void {
    this.#passedBytes += chunk.length
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

  /** What the answer cost, as far as it came. `requestBytes` is what a guess of the input stands on. */
  end(requestBytes: number): TokenUsage & { estimated: boolean } {
    this.#line()
    const guess = Math.ceil(this.#passedBytes / bytesPerToken)
    const isComplete = this.#found !== undefined && this.#found.outputTokens > 0
    if (this.#found && isComplete) return { ...this.#found, estimated: false }
    return {
      inputTokens: this.#found?.inputTokens ?? Math.ceil(requestBytes / bytesPerToken),
      outputTokens: guess,
      estimated: true,
    }
  }

  #hold(part: Buffer): void {
    if (part.length === 0 || this.#skipping) return
    if (this.#heldBytes + part.length > heldBytesMax) {
      this.#skipping = true
      this.#held = []
      return
    }
    this.#held.push(part)
    this.#heldBytes += part.length
  }

  #line(): void {
    const text = this.#skipping ? '' : Buffer.concat(this.#held, this.#heldBytes).toString('utf8')
    this.#held = []
    this.#heldBytes = 0
    this.#skipping = false
    const json = this.#isEventStream ? (/^data:(.*)$/s.exec(text)?.[1] ?? '') : text
    // Most events of a stream say nothing of usage: they need no parsing.
    if (!json.includes('"usage"')) return
    try {
      this.#take(JSON.parse(json))
    } catch {
      // A foreign or torn answer: the guess stands.
    }
  }

  #take(value: unknown): void {
    const usage = usageOf(this.#wire, value)
    if (!usage) return
    // Anthropic tells the input first and the output, cumulated, later; the others tell both at once, at the end.
    this.#found = {
      inputTokens: Math.max(usage.inputTokens, this.#found?.inputTokens ?? 0),
      outputTokens: Math.max(usage.outputTokens, this.#found?.outputTokens ?? 0),
    }
  }
}

function usageOf(wire: WireName, value: unknown): TokenUsage | undefined {
  const direct = field(value, 'usage')
  switch (wire) {
    case 'anthropic-messages': {
      const usage = direct ?? field(field(value, 'message'), 'usage')
      if (!usage) return undefined
      const input = sum(usage, ['input_tokens', 'cache_creation_input_tokens', 'cache_read_input_tokens'])
      return { inputTokens: input, outputTokens: sum(usage, ['output_tokens']) }
    }
    case 'openai-completions':
      return direct
        ? { inputTokens: sum(direct, ['prompt_tokens']), outputTokens: sum(direct, ['completion_tokens']) }
        : undefined
    case 'openai-responses': {
      const usage = direct ?? field(field(value, 'response'), 'usage')
      return usage
        ? { inputTokens: sum(usage, ['input_tokens']), outputTokens: sum(usage, ['output_tokens']) }
        : undefined
    }
  }
}

function field(value: unknown, key: string): object | undefined {
  const found = typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined
  return typeof found === 'object' && found !== null ? found : undefined
}

function sum(usage: object, keys: readonly string[]): number {
  let total = 0
  for (const key of keys) {
    const count = (usage as Record<string, unknown>)[key]
    if (typeof count === 'number' && Number.isSafeInteger(count) && count > 0) total += count
  }
  return total
}
