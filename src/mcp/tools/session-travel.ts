import { z } from 'zod'
import {
  InvalidRequestError,
  Session,
  type RewindPreview,
  type RewoundInfo,
  type SessionInfo,
  type TurnInfo,
} from '../../../sdk/src/index.ts'
import { type NamedPlace, placeNamed, placeRule } from '../../lib/session-place.ts'
import { makes, reads, tool } from '../tool.ts'
import { beginningOf, comparedFile, fileOf, filesMax, firstPart, sessionId } from './common.ts'

/** Turns of a result: a model has to read them. */
const turnsMax = 50
const turnsDefault = 20
const messageCharactersMax = 300

const place = z
  .union([z.string().min(1), z.int()])
  .describe('A message (msg_…), a checkpoint (cp-…), or the number of an event')
const fork = z.object({
  session_id: z.string(),
  activity: z.string(),
  preview_url: z.string(),
  after_event: z.int().optional().describe('It begins there, before the place that was asked for'),
})
const turn = z.object({
  message_id: z.string(),
  message: z.string(),
  parent_message_id: z.string().nullable(),
  last_event: z.int().nullable(),
  started_at: z.string(),
  result: z.string().nullable().describe('null: it runs'),
  checkpoint_id: z.string().nullable().describe('null: it is no place to go to'),
  added_lines: z.int().optional(),
  removed_lines: z.int().optional(),
  tokens: z.int(),
  cost_usd: z.number().optional(),
  left: z.boolean().optional().describe('A rewind has left it'),
  forks: z.array(z.string()).optional().describe('Sessions that began at its end'),
})

export const sessionTravelTools = [
  tool({
    name: 'session_timeline',
    title: 'Show the turns of a session',
    description:
      'Show the turns of a session, newest first: messages, checkpoints, what they changed, used, and forks.',
    input: z.object({
      session_id: sessionId,
      limit: z.int().min(1).max(turnsMax).optional().describe(`Default ${turnsDefault}`),
      cursor: z.string().min(1).optional().describe('next_cursor of the page before'),
      all: z.boolean().optional().describe('Also turns that a rewind has left'),
    }),
    output: z.object({
      session_id: z.string(),
      turns: z.array(turn),
      next_cursor: z.string().optional(),
      undo_checkpoint_id: z.string().optional().describe('A rewind to it undoes the newest rewind'),
    }),
    hints: reads,
    async run({ session_id, limit = turnsDefault, cursor, all = false }, { client, signal }) {
      const session = await Session.connect(session_id, { client, signal })
      const timeline = session.timeline({ branch: all ? 'all' : undefined })
      const { turns, nextCursor, undoCheckpointId } = await timeline.page({ limit, cursor, signal })
      return {
        session_id,
        turns: turns.map(turnOf),
        ...(nextCursor === null ? {} : { next_cursor: nextCursor }),
        ...(undoCheckpointId === null ? {} : { undo_checkpoint_id: undoCheckpointId }),
      }
    },
  }),
  tool({
    name: 'session_fork',
    title: 'Fork a session',
    description: 'Start sessions that go on from here, or from an earlier place: conversation, files and processes.',
    input: z.object({
      session_id: sessionId,
      at: place.optional(),
      count: z.int().min(1).max(20).optional(),
      messages: z.array(z.string().min(1)).min(1).max(20).optional().describe('One fork for each, which gets it'),
    }),
    output: z.object({
      ...fork.partial().shape,
      forks: z
        .array(z.union([fork, z.object({ error: z.string() })]))
        .optional()
        .describe('Of several'),
    }),
    hints: makes,
    async run({ session_id, at: given, count, messages }, { client, signal }) {
      const at = given === undefined ? undefined : placeOf(given)
      const session = await Session.connect(session_id, { client, signal })
      if (messages === undefined && count === undefined) return await forkOf(await session.fork({ at, signal }), signal)
      const variants = messages?.map((message) => ({ message }))
      const several = variants === undefined ? { count: count ?? 1 } : { count, variants }
      const made = await session.fork({ at, signal, ...several })
      const forks = made.map(async (one) =>
        'session' in one ? await forkOf(one.session, signal) : { error: one.error.message },
      )
      return { forks: await Promise.all(forks) }
    },
  }),
  tool({
    name: 'session_rewind',
    title: 'Rewind a session',
    description:
      'Take a session back to the end of a turn: files, processes and conversation. undo_checkpoint_id undoes it.',
    input: z.object({
      session_id: sessionId,
      to: place,
      what: z.enum(['all', 'machine', 'conversation']).optional().describe('Default all'),
      preview: z.boolean().optional().describe('Only tell what would change'),
    }),
    output: z.object({
      session_id: z.string(),
      restored_prompt: z.string().nullable().describe('The first message that was left, to be edited and sent again'),
      processes: z.string().describe('restored, ended or kept'),
      activity: z.string().optional(),
      undo_checkpoint_id: z.string().optional(),
      preview: z
        .object({
          to_event: z.int(),
          turns_left: z.array(z.string()),
          tokens_left: z.int(),
          queued_messages: z.int(),
          interrupts: z.boolean(),
          processes_ended: z.array(z.string()).optional(),
          files: z.array(comparedFile).optional(),
        })
        .optional(),
      truncated: z.boolean().optional(),
    }),
    hints: { ...makes, destructiveHint: true },
    async run({ session_id, to: given, what, preview = false }, { client, signal }) {
      const to = placeOf(given)
      const session = await Session.connect(session_id, { client, signal })
      const asked = { to, what, signal }
      if (preview) return previewOf(session_id, await session.previewRewind(asked))
      return rewoundOf(await session.rewind(asked))
    },
  }),
  tool({
    name: 'session_diff',
    title: 'Compare sessions',
    description: 'Show how the files of a session differ from those of another one, or from an earlier state of it.',
    input: z.object({
      session_id: sessionId,
      against: z.string().min(1).describe('A session, a checkpoint, or a message: the end of its turn'),
      patch: z.boolean().optional().describe('Also return a unified diff'),
    }),
    output: z.object({
      session_id: z.string(),
      files: z.array(comparedFile),
      added_lines: z.int(),
      removed_lines: z.int(),
      tokens: z.int(),
      against_tokens: z.int().optional(),
      patch: z.string().optional(),
      truncated: z.boolean().optional(),
    }),
    hints: reads,
    async run({ session_id, against, patch: isPatchWanted = false }, { client, signal }) {
      const session = await Session.connect(session_id, { client, signal })
      const { files, addedLines, removedLines, isCut, usage } = await session.diff(against, { signal })
      const patch = isPatchWanted
        ? firstPart(await beginningOf(await session.patchStream(against, { signal })))
        : undefined
      return {
        session_id,
        files: files.slice(0, filesMax).map(fileOf),
        added_lines: addedLines,
        removed_lines: removedLines,
        tokens: tokensOf(usage.this),
        ...(usage.against === null ? {} : { against_tokens: tokensOf(usage.against) }),
        ...(patch === undefined ? {} : { patch: patch.text }),
        ...(isCut || files.length > filesMax || patch?.isCut === true ? { truncated: true } : {}),
      }
    },
  }),
]

function placeOf(given: string | number): NamedPlace {
  const found = placeNamed(String(given))
  if (found === undefined) throw new InvalidRequestError(`${JSON.stringify(given)} ${placeRule}`)
  return found
}

const tokensOf = ({ inputTokens, outputTokens }: TurnInfo['usage']) => inputTokens + outputTokens

function turnOf({
  messageId,
  message,
  checkpoint,
  files,
  usage,
  left,
  forks,
  ...rest
}: TurnInfo): z.input<typeof turn> {
  return {
    message_id: messageId,
    message: message.slice(0, messageCharactersMax),
    parent_message_id: rest.parentMessageId,
    last_event: rest.lastEvent,
    started_at: rest.startedAt,
    result: rest.result,
    checkpoint_id: checkpoint?.id ?? null,
    ...(files === null ? {} : { added_lines: files.addedLines, removed_lines: files.removedLines }),
    tokens: tokensOf(usage),
    ...(usage.totalCostUsd === undefined ? {} : { cost_usd: usage.totalCostUsd }),
    ...(left ? { left } : {}),
    ...(forks.length === 0 ? {} : { forks: forks.map(({ id }) => id) }),
  }
}

async function forkOf(session: Session, signal: AbortSignal) {
  const { id, previewUrl, forkedAt } = session
  const { activity }: SessionInfo = await session.info({ signal })
  const early = forkedAt?.exact === false ? { after_event: forkedAt.afterEvent } : {}
  return { session_id: id, activity, preview_url: previewUrl, ...early }
}

function rewoundOf({ session, restoredPrompt, undoCheckpointId, processes }: RewoundInfo) {
  const { id: session_id, activity } = session
  return { session_id, activity, ...promptOf(restoredPrompt), processes, undo_checkpoint_id: undoCheckpointId }
}

function previewOf(session_id: string, { restoredPrompt, processes, processesEnded, files, ...rest }: RewindPreview) {
  const isLong = files !== null && (files.isCut || files.files.length > filesMax)
  return {
    session_id,
    ...promptOf(restoredPrompt),
    processes,
    preview: {
      to_event: rest.toEvent,
      turns_left: rest.turnsLeft,
      tokens_left: rest.tokensLeft,
      queued_messages: rest.queuedMessages,
      interrupts: rest.interrupts,
      ...(processesEnded === null ? {} : { processes_ended: processesEnded }),
      ...(files === null ? {} : { files: files.files.slice(0, filesMax).map(fileOf) }),
    },
    ...(isLong ? { truncated: true } : {}),
  }
}

function promptOf(restoredPrompt: string | null) {
  if (restoredPrompt === null) return { restored_prompt: null }
  const { text, isCut } = firstPart(restoredPrompt)
  return { restored_prompt: text, ...(isCut ? { truncated: true } : {}) }
}
