import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import type { SessionUpdate } from '@agentclientprotocol/sdk'
import { isRecord } from '../../lib/json.ts'
import { toolNames, type AgentEventOf } from '../../protocol/agent.ts'
import type { HarnessEvent, HarnessSettings } from '../harness.ts'
import { oneLine, pathOf, summarise } from '../summary.ts'

type Block = AgentEventOf<'assistant'>['message']['content'][number]

/** Bounds for the calls of one turn and the text of one answer. Updates beyond them are ignored. */
const openCallsMax = 1000
const textCharactersMax = 2 * 1024 * 1024

interface OpenCall extends AcpCall {
  startedAt: number
  isReported: boolean
  existed: boolean
}

/** Maps the updates of one turn to events of the protocol. A call is reported when its arguments are known, before its end. */
export class AcpEvents {
  readonly #settings: HarnessSettings
  readonly #emit: (event: HarnessEvent) => void
  readonly #calls = new Map<string, OpenCall>()
  #text = ''
  #messageId: string | undefined
  /** The text of the last answer that has text. */
  lastText = ''

  constructor(settings: HarnessSettings, emit: (event: HarnessEvent) => void) {
    this.#settings = settings
    this.#emit = emit
  }

  take(update: SessionUpdate): void {
    const { sessionUpdate } = update
    if (sessionUpdate === 'agent_message_chunk') {
      this.#chunk(update.content.type === 'text' ? update.content.text : '', update.messageId ?? undefined)
    }
    if (sessionUpdate === 'tool_call' || sessionUpdate === 'tool_call_update') this.#callUpdated(update)
  }

  /** Ends the turn: reports the rest. A call without an end counts as failed. */
  end(): void {
    for (const [id, call] of this.#calls) this.#callEnded(id, call, true, undefined)
    this.#report([])
  }

  #chunk(text: string, messageId: string | undefined): void {
    if (messageId !== undefined && this.#messageId !== undefined && messageId !== this.#messageId) this.#report([])
    this.#messageId = messageId ?? this.#messageId
    this.#text = (this.#text + text).slice(0, textCharactersMax)
  }

  #callUpdated(update: SessionUpdate & { sessionUpdate: 'tool_call' | 'tool_call_update' }): void {
    const id = update.toolCallId.slice(0, 1000)
    const known = this.#calls.get(id)
    if (!known && (this.#calls.size >= openCallsMax || update.sessionUpdate === 'tool_call_update')) return
    const call: OpenCall = known ?? { startedAt: performance.now(), isReported: false, existed: false }
    this.#calls.set(id, call)
    call.name = update.name ?? metaToolName(update) ?? call.name
    call.kind = update.kind ?? call.kind
    call.title = update.title ?? call.title
    if (isRecord(update.rawInput) && Object.keys(update.rawInput).length > 0) call.input = update.rawInput
    const path = update.locations?.[0]?.path
    if (path !== undefined) call.path = path
    const isOver = update.status === 'completed' || update.status === 'failed'
    if (call.input || isOver || update.status === 'in_progress') this.#reportCall(id, call)
    if (isOver) this.#callEnded(id, call, update.status === 'failed' || hasFailed(update.rawOutput), update.content)
  }

  #reportCall(id: string, call: OpenCall): void {
    if (call.isReported) return
    call.isReported = true
    call.existed = existsSync(this.#file(call))
    this.#report([{ type: 'tool_use', id, name: protocolToolName(call).slice(0, 1000), input: inputOf(call) }])
  }

  #callEnded(id: string, call: OpenCall, isError: boolean, content: unknown): void {
    this.#reportCall(id, call)
    this.#calls.delete(id)
    const tool = protocolToolName(call)
    const result = { content: Array.isArray(content) ? content.map((item: unknown) => innerContent(item)) : [] }
    const isKnown = call.input !== undefined || call.path !== undefined
    this.#emit({
      type: 'tool_use_summary',
      tool: oneLine(tool),
      tool_use_id: id,
      summary: isKnown
        ? summarise(tool, inputOf(call), result, isError, this.#settings.cwd)
        : oneLine(call.title ?? `Called ${tool}`),
      is_error: isError,
      duration_ms: Math.round(performance.now() - call.startedAt),
    })
    const file = this.#file(call)
    if (!isError && (tool === 'write' || tool === 'edit') && file !== '' && file.length <= 4096) {
      this.#emit({ type: 'artifact', path: file, summary: call.existed ? 'Changed' : 'Created' })
    }
  }

  #report(calls: Block[]): void {
    const text: Block[] = this.#text.trim() === '' ? [] : [{ type: 'text', text: this.#text }]
    if (text.length > 0) this.lastText = this.#text
    this.#text = ''
    const content = [...text, ...calls]
    if (content.length === 0) return
    this.#emit({ type: 'assistant', message: { role: 'assistant', content, model: this.#settings.model.id } })
  }

  #file(call: AcpCall): string {
    const path = pathOf(inputOf(call))
    return path === '' ? '' : resolve(this.#settings.cwd, path)
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

/** Agents' names of the protocol's tools, in lower case without `_`, `-` and blanks. */
const otherNames: Record<string, string> = {
  runshellcommand: 'bash',
  shell: 'bash',
  terminal: 'bash',
  execute: 'bash',
  exec: 'bash',
  readfile: 'read',
  readmanyfiles: 'read',
  writefile: 'write',
  createfile: 'write',
  replace: 'edit',
  multiedit: 'edit',
  strreplace: 'edit',
  applypatch: 'edit',
  find: 'glob',
  findfiles: 'glob',
  grepsearch: 'grep',
  searchfilecontent: 'grep',
  search: 'grep',
  listdirectory: 'ls',
  list: 'ls',
}

/** The protocol's name of a call's tool; the program's own name for a tool that the protocol does not know. */
export function protocolToolName(call: AcpCall): string {
  const name = (call.name ?? '').toLowerCase().replaceAll(/[_\-\s]/g, '')
  if ((toolNames as readonly string[]).includes(name)) return name
  const other = Object.hasOwn(otherNames, name) ? otherNames[name] : undefined
  if (other !== undefined) return other
  if (call.name !== undefined) return call.name
  return nameOfKind(call)
}

/** Agents that send no tool name send at least its kind. */
function nameOfKind({ kind, input = {} }: AcpCall): string {
  if (kind === 'execute') return 'bash'
  if (kind === 'read') return 'read'
  if (kind === 'edit') return 'content' in input ? 'write' : 'edit'
  if (kind === 'search')
    return 'pattern' in input && !('include' in input) && !('output_mode' in input) ? 'glob' : 'grep'
  return kind ?? 'other'
}
