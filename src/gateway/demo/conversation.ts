import { join } from 'node:path'
import type { ChatCompletionRequest, ChatMessage } from '@copilotkit/aimock'
import { isRecord } from '../../lib/json.ts'

/** The parts of a request that the demo model uses. */
export interface Conversation {
  /** The user's last message. */
  prompt: string
  /** Tool calls after that message, grouped by answer of the model. */
  steps: DemoCall[][]
  /** Messages whose pages or changes are in the files already, oldest first. */
  earlierPrompts: string[]
  /** An earlier turn has written the page. */
  hasPage: boolean
  tools: DemoTool[]
  /** From the system prompt of the harness, for tools with absolute paths. */
  cwd: string | undefined
  /** Characters of the whole request, for the reported usage. */
  characterCount: number
}

interface DemoCall {
  name: string
  args: Record<string, unknown>
  result: string
}

interface DemoTool {
  name: string
  /** The names of its parameters. */
  parameters: string[]
}

export function readConversation(request: ChatCompletionRequest): Conversation {
  const { messages } = request
  const results = new Map(messages.map((message) => [message.tool_call_id ?? '', contentText(message)]))
  const lastUser = messages.findLastIndex((message) => message.role === 'user')
  const earlier = messages.slice(0, Math.max(0, lastUser))
  const firstUser = messages.filter((message) => message.role === 'user').slice(0, 1)
  const system = messages.filter((message) => message.role === 'system').map(contentText)
  return {
    prompt: promptText(messages[lastUser]),
    steps: steps(messages.slice(lastUser + 1), results),
    earlierPrompts: earlier.filter((message) => message.role === 'user').map(promptText),
    hasPage: earlier.some((message) => calls(message, results).some((call) => isPageWrite(call))),
    tools: (request.tools ?? []).map((tool) => ({
      name: tool.function.name,
      parameters: parameterNames(tool.function.parameters),
    })),
    // Some harnesses put the directory into a reminder of the first user message instead of the system prompt.
    cwd: workingDirectory.exec([...system, ...firstUser.map(contentText)].join('\n'))?.[1],
    characterCount: messages.reduce((total, message) => total + contentText(message).length, 0),
  }
}

const workingDirectory = /working (?:directory|in the directory):\s*(\/\S*)/i

/** One step per answer. OpenAI's responses wire has an item per call instead of a message: adjacent items are one step. */
function steps(messages: readonly ChatMessage[], results: ReadonlyMap<string, string>): DemoCall[][] {
  const found: DemoCall[][] = []
  let isOpen = false
  for (const message of messages) {
    if (message.role === 'assistant') {
      if (isOpen) found.at(-1)?.push(...calls(message, results))
      else found.push(calls(message, results))
    }
    isOpen = message.role === 'assistant'
  }
  return found
}

function isPageWrite(call: DemoCall): boolean {
  return Object.values(call.args).some((value) => typeof value === 'string' && /(^|\/)index\.html$/.test(value))
}

function calls(message: ChatMessage, results: ReadonlyMap<string, string>): DemoCall[] {
  return (message.tool_calls ?? []).map((call) => ({
    name: call.function.name,
    args: jsonObject(call.function.arguments),
    result: results.get(call.id) ?? '',
  }))
}

function contentText(message: ChatMessage | undefined): string {
  return contentTexts(message).join('\n')
}

function contentTexts(message: ChatMessage | undefined): string[] {
  const content = message?.content ?? ''
  return typeof content === 'string' ? [content] : content.map((part) => part.text ?? '')
}

/** The last text of the user, without the reminders of the harness. One message also holds prompts that the model has not answered. */
function promptText(message: ChatMessage | undefined): string {
  const texts = contentTexts(message).map((text) => withoutReminders(text).trim())
  return texts.findLast((text) => text !== '') ?? ''
}

const reminderEnd = '</system-reminder>'

/** Not a regular expression: it would search the whole rest from each start without an end. */
function withoutReminders(text: string): string {
  let kept = ''
  let from = 0
  for (;;) {
    const start = text.indexOf('<system-reminder>', from)
    const end = start === -1 ? -1 : text.indexOf(reminderEnd, start)
    if (end === -1) return kept + text.slice(from)
    kept += text.slice(from, start)
    from = end + reminderEnd.length
  }
}

function parameterNames(schema: object | undefined): string[] {
  const properties = isRecord(schema) ? schema['properties'] : undefined
  return isRecord(properties) ? Object.keys(properties) : []
}

function jsonObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : {}
  } catch {
    return {}
  }
}

export interface ToolUse {
  name: string
  arguments: string
}

type Kind = 'write' | 'edit' | 'bash'

/** Names of the tools in harnesses, in lower case. */
const toolNames: Record<Kind, readonly string[]> = {
  write: ['write', 'write_file'],
  edit: ['edit', 'replace'],
  bash: ['bash', 'run_shell_command', 'shell'],
}

/** Names of an edit's two texts in harnesses that do not call them `oldText` and `newText`. */
const editNames = [
  ['old_string', 'new_string'],
  ['oldString', 'newString'],
] as const

/** Calls of the offered tools, with the parameter names of the harness. */
export class ToolCalls {
  readonly #tools: readonly DemoTool[]
  readonly #cwd: string | undefined

  constructor(conversation: Conversation) {
    this.#tools = conversation.tools
    this.#cwd = conversation.cwd
  }

  write(path: string, content: string): ToolUse | undefined {
    const tool = this.#tool('write')
    return tool && toolUse(tool, { ...this.#path(tool, path), content })
  }

  edit(path: string, oldText: string, newText: string): ToolUse | undefined {
    const tool = this.#tool('edit')
    if (!tool) return undefined
    const target = this.#path(tool, path)
    if (tool.parameters.includes('edits')) return toolUse(tool, { ...target, edits: [{ oldText, newText }] })
    const [oldName, newName] = editNames.find(([name]) => tool.parameters.includes(name)) ?? ['oldText', 'newText']
    return toolUse(tool, { ...target, [oldName]: oldText, [newName]: newText })
  }

  bash(command: string): ToolUse | undefined {
    const tool = this.#tool('bash')
    if (!tool) return undefined
    return toolUse(tool, {
      command,
      ...(tool.parameters.includes('description') && { description: 'Run a command' }),
      // This parameter is required where it is offered.
      ...(tool.parameters.includes('is_background') && { is_background: false }),
    })
  }

  #tool(kind: Kind): DemoTool | undefined {
    return this.#tools.find((tool) => toolNames[kind].includes(tool.name.toLowerCase()))
  }

  #path(tool: DemoTool, path: string): Record<string, string> {
    const parameter = ['path', 'file_path', 'filePath'].find((name) => tool.parameters.includes(name)) ?? 'path'
    // Harnesses with `file_path` require absolute paths.
    return { [parameter]: parameter === 'path' || !this.#cwd ? path : join(this.#cwd, path) }
  }
}

function toolUse(tool: DemoTool, args: object): ToolUse {
  return { name: tool.name, arguments: JSON.stringify(args) }
}
