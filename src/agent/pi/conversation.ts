import type { AgentSession } from '@earendil-works/pi-coding-agent'

export type PiMessage = AgentSession['messages'][number]
export type AssistantMessage = Extract<PiMessage, { role: 'assistant' }>
type ToolResultMessage = Extract<PiMessage, { role: 'toolResult' }>

/**
 * The progress of a turn that an earlier process began: `absent` if its message is not in the conversation, `open` if the model must
 * answer next, or the answer that ended it. Tool calls with a lost outcome get a result that says so.
 */
export function conversationTail(session: AgentSession, content: string): 'absent' | 'open' | AssistantMessage {
  if (lastUserText(session.messages) !== content) return 'absent'
  dropFailedAnswers(session)
  closeToolCalls(session)
  const last = session.messages.at(-1)
  return last?.role === 'assistant' ? last : 'open'
}

/**
 * Removes failed and aborted answers from the end, so that the model can be called again. On disk each attempt has left one.
 */
export function dropFailedAnswers(session: AgentSession): void {
  const { messages } = session.agent.state
  const last = messages.findLastIndex((message) => !hasFailed(message))
  if (last < messages.length - 1) session.agent.state.messages = messages.slice(0, last + 1)
}

function hasFailed(message: PiMessage): boolean {
  return message.role === 'assistant' && (message.stopReason === 'error' || message.stopReason === 'aborted')
}

function lastUserText(messages: readonly PiMessage[]): string | undefined {
  const message = messages.findLast((candidate) => candidate.role === 'user')
  if (message?.role !== 'user') return undefined
  if (typeof message.content === 'string') return message.content
  return message.content.map((block) => (block.type === 'text' ? block.text : '')).join('')
}

function closeToolCalls(session: AgentSession): void {
  const { messages } = session.agent.state
  const index = messages.findLastIndex((message) => message.role === 'assistant')
  const assistant = messages[index]
  if (assistant?.role !== 'assistant') return
  const answered = new Set(
    messages.slice(index + 1).map((message) => (message.role === 'toolResult' ? message.toolCallId : '')),
  )
  const missing: ToolResultMessage[] = []
  for (const block of assistant.content) {
    if (block.type !== 'toolCall' || answered.has(block.id)) continue
    missing.push({
      role: 'toolResult',
      toolCallId: block.id,
      toolName: block.name,
      content: [{ type: 'text', text: 'The agent was restarted while this tool ran; its outcome is unknown.' }],
      isError: true,
      timestamp: Date.now(),
    })
  }
  for (const result of missing) session.sessionManager.appendMessage(result)
  session.agent.state.messages = [...messages, ...missing]
}
