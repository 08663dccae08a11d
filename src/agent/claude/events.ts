import { isRecord } from '../../lib/json.ts'
import { protocolToolName } from '../summary.ts'
import { TurnEvents, type Block, type OpenCall } from '../turn-events.ts'

/** Maps the SDK's messages of one turn to events of the protocol. */
export class ClaudeEvents extends TurnEvents {
  readonly #calls = new Map<string, OpenCall>()
  sessionId: string | undefined
  result: ReturnType<typeof resultOf> | undefined

  /** Takes any value: a newer SDK may send unknown messages. */
  take(message: unknown): void {
    if (!isRecord(message)) return
    const { type, session_id: sessionId } = message
    if (typeof sessionId === 'string' && sessionId !== '') this.sessionId = sessionId.slice(0, 200)
    if (type === 'stream_event' && !message['parent_tool_use_id']) this.#write(message['event'])
    if (type === 'assistant') this.#assistant(message)
    if (type === 'user') this.#toolResults(message)
    if (type === 'result') this.result = resultOf(message)
  }

  /** Ends the turn. A call without an end counts as failed. */
  end(): void {
    for (const id of this.#calls.keys()) this.#callResult(id, undefined, true)
  }

  /** One event of the API's stream. */
  #write(event: unknown): void {
    if (!isRecord(event)) return
    if (event['type'] === 'message_start') this.draft.restart()
    const { delta } = event
    if (!isRecord(delta) || delta['type'] !== 'text_delta') return
    if (typeof delta['text'] === 'string') this.draft.add(delta['text'])
  }

  #assistant(message: Record<string, unknown>): void {
    const inner = isRecord(message['message']) ? message['message'] : {}
    const content: Block[] = []
    for (const block of Array.isArray(inner['content']) ? (inner['content'] as unknown[]) : []) {
      const known = this.#block(block)
      if (known) content.push(known)
    }
    this.answered(content)
  }

  #block(block: unknown): Block | undefined {
    if (!isRecord(block)) return undefined
    const { type, text, id, name } = block
    if (type === 'text' && typeof text === 'string' && text !== '') return { type, text }
    if (type !== 'tool_use' || typeof id !== 'string' || typeof name !== 'string') return undefined
    const input = isRecord(block['input']) ? block['input'] : {}
    const tool = protocolToolName(name)
    this.#calls.set(id, this.openCall(tool, input))
    return { type, id: id.slice(0, 1000), name: tool, input }
  }

  #toolResults(message: Record<string, unknown>): void {
    const content = isRecord(message['message']) ? message['message']['content'] : undefined
    for (const block of Array.isArray(content) ? (content as unknown[]) : []) {
      if (!isRecord(block) || block['type'] !== 'tool_result') continue
      const id = block['tool_use_id']
      if (typeof id === 'string') this.#callResult(id, block['content'], block['is_error'] === true)
    }
  }

  #callResult(id: string, content: unknown, isError: boolean): void {
    const call = this.#calls.get(id)
    if (!call) return
    this.#calls.delete(id)
    const blocks = typeof content === 'string' ? [{ type: 'text', text: content }] : content
    this.callEnded(id, call, isError, { content: blocks })
  }
}

function resultOf(message: Record<string, unknown>) {
  const { subtype, is_error: isError, result, num_turns: turns, total_cost_usd: cost } = message
  return {
    subtype: typeof subtype === 'string' ? subtype : '',
    isError: isError === true,
    result: typeof result === 'string' ? result : '',
    turnCount: typeof turns === 'number' && Number.isSafeInteger(turns) && turns >= 0 ? turns : 0,
    costUsd: typeof cost === 'number' && Number.isFinite(cost) && cost >= 0 ? cost : undefined,
  }
}
