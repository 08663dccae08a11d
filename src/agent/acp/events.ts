import type { SessionUpdate } from '@agentclientprotocol/sdk'
import { isRecord } from '../../lib/json.ts'
import { inOneLine, protocolToolName } from '../summary.ts'
import { TurnEvents, type Block } from '../turn-events.ts'

/** Bounds for the calls of one turn and the text of one answer. What is beyond them is left out, and an error says so. */
const openCallsMax = 1000
const textCharactersMax = 512 * 1024

interface KnownCall extends AcpCall {
  startedAt: number
  isReported: boolean
  existed: boolean
}

/** Maps the updates of one turn to events of the protocol. A call is reported when its arguments are known, before its end. */
export class AcpEvents extends TurnEvents {
  readonly #calls = new Map<string, KnownCall>()
  #text = ''
  #charactersLeftOut = 0
  #callsLeftOut = 0
  #messageId: string | undefined

  take(update: SessionUpdate): void {
    const { sessionUpdate } = update
    if (sessionUpdate === 'agent_message_chunk') {
      this.#chunk(update.content.type === 'text' ? update.content.text : '', update.messageId ?? undefined)
    }
    if (sessionUpdate === 'tool_call' || sessionUpdate === 'tool_call_update') this.#callUpdated(update)
  }

  /** Ends the turn: reports the rest. A call without an end counts as failed. */
  end(): void {
    for (const [id, call] of this.#calls) this.#endCall(id, call, true, undefined)
    this.#report([])
    if (this.#callsLeftOut > 0) this.leftOut(`${this.#callsLeftOut} tool calls`)
  }

  #chunk(text: string, messageId: string | undefined): void {
    if (messageId !== undefined && this.#messageId !== undefined && messageId !== this.#messageId) this.#report([])
    this.#messageId = messageId ?? this.#messageId
    const taken = text.slice(0, textCharactersMax - this.#text.length)
    this.#charactersLeftOut += text.length - taken.length
    this.#text += taken
    this.draft.add(taken)
  }

  #callUpdated(update: SessionUpdate & { sessionUpdate: 'tool_call' | 'tool_call_update' }): void {
    const id = update.toolCallId.slice(0, 1000)
    const known = this.#calls.get(id)
    if (!known && update.sessionUpdate === 'tool_call_update') return
    if (!known && this.#calls.size >= openCallsMax) {
      this.#callsLeftOut++
      return
    }
    const call: KnownCall = known ?? { startedAt: performance.now(), isReported: false, existed: false }
    this.#calls.set(id, call)
    call.name = update.name ?? metaToolName(update) ?? call.name
    call.kind = update.kind ?? call.kind
    call.title = update.title ?? call.title
    if (isRecord(update.rawInput) && Object.keys(update.rawInput).length > 0) call.input = update.rawInput
    const path = update.locations?.[0]?.path
    if (path !== undefined) call.path = path
    const isOver = update.status === 'completed' || update.status === 'failed'
    if (call.input || isOver || update.status === 'in_progress') this.#reportCall(id, call)
    if (isOver) this.#endCall(id, call, update.status === 'failed' || hasFailed(update.rawOutput), update.content)
  }

  #reportCall(id: string, call: KnownCall): void {
    if (call.isReported) return
    call.isReported = true
    const [tool, input] = [toolOf(call), inputOf(call)]
    call.existed = this.hasFile(input)
    this.#report([{ type: 'tool_use', id, name: tool.slice(0, 1000), input }])
  }

  #endCall(id: string, call: KnownCall, isError: boolean, content: unknown): void {
    this.#reportCall(id, call)
    this.#calls.delete(id)
    const tool = toolOf(call)
    const isKnown = call.input !== undefined || call.path !== undefined
    const summary = isKnown ? undefined : inOneLine(call.title ?? `Called ${tool}`)
    const result = { content: Array.isArray(content) ? content.map((item: unknown) => innerContent(item)) : [] }
    this.callEnded(id, { ...call, tool, input: inputOf(call) }, isError, result, summary)
  }

  #report(calls: Block[]): void {
    const count = this.#charactersLeftOut
    const whole = count === 0 ? this.#text : `${this.#text.toWellFormed()}… [${count} characters cut]`
    const text: Block[] = whole.trim() === '' ? [] : [{ type: 'text', text: whole }]
    this.#text = ''
    this.#charactersLeftOut = 0
    if (count > 0) this.leftOut(`${count} characters of an answer`)
    this.answered([...text, ...calls])
  }
}

function inputOf(call: AcpCall): Record<string, unknown> {
  return call.input ?? (call.path === undefined ? {} : { path: call.path })
}

/** Before ACP had a field for the tool's name, agents sent it as an extension. */
function metaToolName(update: Record<string, unknown>): string | undefined {
  const meta = update['_meta']
  const name = isRecord(meta) ? meta['toolName'] : undefined
  return typeof name === 'string' && name !== '' ? name : undefined
}

/** Some agents report a command with a non-zero exit status as `completed`. */
function hasFailed(rawOutput: unknown): boolean {
  const exitCode = isRecord(rawOutput) ? rawOutput['exitCode'] : undefined
  return typeof exitCode === 'number' && exitCode !== 0
}

function innerContent(item: unknown): unknown {
  return isRecord(item) && item['type'] === 'content' ? item['content'] : item
}

/** A call as far as the agent has described it. */
interface AcpCall {
  /** The program's own name of the tool. */
  name?: string | undefined
  kind?: string | undefined
  title?: string | undefined
  input?: Record<string, unknown>
  /** The path of its file. */
  path?: string
}

/** The protocol's name of a call's tool. Agents that send no name send at least its kind. */
export function toolOf({ name, kind, input = {} }: AcpCall): string {
  if (name !== undefined) return protocolToolName(name)
  if (kind === 'execute') return 'bash'
  if (kind === 'read') return 'read'
  if (kind === 'edit') return 'content' in input ? 'write' : 'edit'
  if (kind === 'search')
    return 'pattern' in input && !('include' in input) && !('output_mode' in input) ? 'glob' : 'grep'
  return kind ?? 'other'
}
