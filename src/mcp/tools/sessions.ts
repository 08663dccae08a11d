import { z } from 'zod'
import { Session, type AgentEvent, type SessionInfo } from '../../../sdk/src/index.ts'
import { makes, reads, sets, tool, type ToolContext } from '../tool.ts'
import { firstPart, sessionId } from './common.ts'

const waitSeconds = z
  .int()
  .min(0)
  .max(3600)
  .optional()
  .describe('Wait so long for the end of the turn; default 0: return at once')
const userIdDefault = 'mcp'
const listMax = 50

const turn = {
  session_id: z.string(),
  activity: z.string().describe('starting, working, idle, paused, failed or ended'),
  preview_url: z.string(),
  answer: z.string().optional().describe('What the agent said last, once its turn has ended'),
  truncated: z.boolean().optional(),
}

export const sessionTools = [
  tool({
    name: 'session_start',
    title: 'Start an agent',
    description: 'Start an AI agent on a task in a sandbox of its own. What it builds is seen at preview_url.',
    input: z.object({
      prompt: z.string().min(1),
      model: z.string().optional(),
      checkpoint_id: z.string().optional().describe('Machine to begin on'),
      user_id: z.string().min(1).optional().describe('Owner of the session'),
      wait_seconds: waitSeconds,
    }),
    output: z.object(turn),
    hints: makes,
    async run({ prompt, model, checkpoint_id, user_id, wait_seconds = 0 }, context) {
      const { client, signal } = context
      const session = await Session.create({
        client,
        signal,
        prompt,
        userId: user_id ?? userIdDefault,
        checkpointId: checkpoint_id,
        agent: model === undefined ? undefined : { model },
      })
      return await afterTurn(session, 0, wait_seconds, context)
    },
  }),
  tool({
    name: 'session_send',
    title: 'Send an agent a message',
    description: 'Send the agent of a session the next task. Messages to a working agent wait in their order.',
    input: z.object({ session_id: sessionId, message: z.string().min(1), wait_seconds: waitSeconds }),
    output: z.object(turn),
    hints: makes,
    async run({ session_id, message, wait_seconds = 0 }, context) {
      const { client, signal } = context
      const session = await Session.connect(session_id, { client, signal })
      const last = wait_seconds === 0 ? 0 : await lastEvent(session, context)
      await session.send(message, { signal })
      return await afterTurn(session, last, wait_seconds, context)
    },
  }),
]

export const moreSessionTools = [
  tool({
    name: 'session_get',
    title: 'Look at a session',
    description: 'Return what the agent of a session does, and what it said last.',
    input: z.object({ session_id: sessionId }),
    output: z.object(turn),
    hints: reads,
    async run({ session_id }, { client, signal }) {
      const session = await Session.connect(session_id, { client, signal })
      return resultOf(await session.info({ signal }))
    },
  }),
  tool({
    name: 'session_list',
    title: 'List sessions',
    description: `List sessions, newest first, at most ${listMax}.`,
    input: z.object({ user_id: z.string().optional(), search: z.string().min(1).optional() }),
    output: z.object({
      sessions: z.array(z.object({ session_id: z.string(), title: z.string(), activity: z.string() })),
    }),
    hints: reads,
    async run({ user_id, search }, { client, signal }) {
      const sessions = []
      for await (const { id, project, activity } of Session.list({ client, signal, userId: user_id, search })) {
        sessions.push({ session_id: id, title: project.title, activity })
        if (sessions.length === listMax) break
      }
      return { sessions }
    },
  }),
  tool({
    name: 'session_interrupt',
    title: 'Interrupt an agent',
    description: 'End the turn of the agent of a session.',
    input: z.object({ session_id: sessionId }),
    output: z.object(turn),
    hints: sets,
    async run({ session_id }, { client, signal }) {
      const session = await Session.connect(session_id, { client, signal })
      return resultOf(await session.interrupt({ signal }))
    },
  }),
]

/** Waits at most `seconds` for the end of the next turn, and reports the agent's work as progress. */
async function afterTurn(session: Session, after: number, seconds: number, context: ToolContext) {
  const late = AbortSignal.timeout(seconds * 1000)
  const signal = AbortSignal.any([context.signal, late])
  try {
    if (seconds > 0) {
      for await (const { data } of session.events({ after, signal })) {
        context.progress(lineOf(data))
        if (data.type === 'turn_complete' || (data.type === 'error' && data.fatal)) break
      }
    }
  } catch (error) {
    context.signal.throwIfAborted()
    if (!late.aborted) throw error
  }
  return resultOf(await session.info({ signal: context.signal }))
}

/** The number of the last event that there is. */
async function lastEvent(session: Session, { signal }: ToolContext): Promise<number> {
  let last = 0
  for await (const record of session.export({ signal })) {
    if (record.type === 'stream') last = record.stream.sequence
  }
  return last
}

function resultOf({ id, activity, previewUrl, messages }: SessionInfo) {
  const said = messages.findLast(({ role }) => role === 'assistant')?.content
  const answer = activity === 'idle' || activity === 'failed' || activity === 'ended' ? said : undefined
  const { text, isCut } = firstPart(answer ?? '')
  return {
    session_id: id,
    activity,
    preview_url: previewUrl,
    ...(answer === undefined ? {} : { answer: text }),
    ...(isCut ? { truncated: true } : {}),
  }
}

/** One line of progress for an event. */
function lineOf(data: AgentEvent): string {
  switch (data.type) {
    case 'tool_use_summary':
      return data.summary
    case 'error':
      return `error: ${data.message}`
    case 'assistant':
      return data.message.content.map((block) => (block.type === 'text' ? block.text : block.name)).join(' ')
    case 'ready':
    case 'configured':
    case 'result':
    case 'turn_complete':
    case 'checkpoint_created':
    case 'rewound':
    case 'capsule_created':
    default:
      return data.type
  }
}
