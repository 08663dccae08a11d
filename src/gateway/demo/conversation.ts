import type { ChatCompletionRequest, ChatMessage } from '@copilotkit/aimock'

/** What the demo model reads out of a request. */
export interface Conversation {
  /** The user's last message. */
  prompt: string
  /** Tool calls since that message, in steps: one per answer of the model. */
  steps: DemoCall[][]
  /** The messages whose pages or changes are in the files by now, oldest first. */
  earlierPrompts: string[]
  /** Whether an earlier turn has written the page. */
  hasPage: boolean
  tools: DemoTool[]
  /** From the system prompt of the harness, for tools that want absolute paths. */
  cwd: string | undefined
  /** Characters of the whole request, for the usage that is told. */
  characterCount: number
}

export interface DemoCall {
  name: string
  args: Record<string, unknown>
  result: string
}

export interface DemoTool {
  name: string
  /** Names of its parameters. */
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
    // Some harnesses say it in a reminder of the first user message instead of in the system prompt.
    cwd: workingDirectory.exec([...system, ...firstUser.map(contentText)].join('\n'))?.[1],
    characterCount: messages.reduce((total, message) => total + contentText(message).length, 0),
  }
}

const workingDirectory = /working (?:directory|in the directory):\s*(\/\S*)/i
const reminderStart = '<system-reminder>'
const reminderEnd = '</system-reminder>'

/** One step per answer. OpenAI's newer wire has an item per call instead of a message: what stands together is one step. */
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
  const content = message?.content ?? ''
  return typeof content === 'string' ? content : content.map((part) => part.text ?? '').join('\n')
}

/** What the user said, without what a harness puts beside it. */
function promptText(message: ChatMessage | undefined): string {
  return withoutReminders(contentText(message)).trim()
}

/** Not by an expression: from each start that has no end it would search all the rest. */
function withoutReminders(text: string): string {
  let kept = ''
  let from = 0
  for (;;) {
    const start = text.indexOf(reminderStart, from)
    const end = start === -1 ? -1 : text.indexOf(reminderEnd, start)
    if (end === -1) return kept + text.slice(from)
    kept += text.slice(from, start)
    from = end + reminderEnd.length
  }
}

function parameterNames(schema: object | undefined): string[] {
  const properties: unknown = schema && 'properties' in schema ? schema.properties : undefined
  return typeof properties === 'object' && properties !== null ? Object.keys(properties) : []
}

function jsonObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}
