import { z } from 'zod'

const count = z.int().min(0).max(Number.MAX_SAFE_INTEGER)
export const messageId = z.string().min(1).max(200)
export const shortText = z.string().max(1000)
const agentSessionId = z.string().max(200)
const described = <T extends z.ZodType>(schema: T, description: string): T => schema.describe(description)

const usage = z.object({
  input_tokens: described(count, 'All input, including tokens read from and written to a cache'),
  cache_read_input_tokens: described(count, 'Part of the input: read from a cache'),
  cache_creation_input_tokens: described(count, 'Part of the input: written to a cache'),
  output_tokens: described(count, 'All that the model has written'),
})

const textBlockSchema = z.object({
  type: described(z.literal('text'), 'A piece of text'),
  text: described(z.string(), 'The text, as Markdown'),
})

const toolUseBlockSchema = z.object({
  type: described(z.literal('tool_use'), 'A call of a tool'),
  id: described(shortText, 'Id of the call'),
  name: described(shortText, 'Name of the tool'),
  input: described(z.record(z.string(), z.unknown()), 'Arguments of the call'),
})

const eventSessionId = described(agentSessionId, 'The agent’s own id of the conversation')

/**
 * What an agent says. The session service emits `error`, `result` and `turn_complete` too, where the agent cannot. A new type is added here,
 * and `session/` says in which state it accepts it.
 */
export const agentStreamEvents = [
  z.object({
    type: described(z.literal('ready'), 'The agent’s process is up; sent once, first'),
    harness: described(shortText, 'Name of the harness'),
    version: described(shortText, 'Version of the harness'),
  }),
  z.object({
    type: described(z.literal('configured'), 'The agent takes messages'),
    model: described(shortText, 'Name of the model'),
    tools: described(z.array(shortText).max(1000), 'Names of its tools'),
    cwd: described(z.string().max(4096), 'Its working directory'),
  }),
  z.object({
    type: described(z.literal('assistant'), 'The agent has written, or calls tools'),
    message: described(
      z.object({
        role: described(z.literal('assistant'), 'Who wrote it'),
        content: described(
          z.array(z.discriminatedUnion('type', [textBlockSchema, toolUseBlockSchema])).max(10_000),
          'Text and calls of tools, in order',
        ),
        model: described(shortText.optional(), 'The model that wrote it'),
        usage: described(usage.optional(), 'Tokens of this answer'),
      }),
      'One answer of the model',
    ),
    session_id: eventSessionId,
  }),
  z.object({
    type: described(z.literal('tool_use_summary'), 'A call of a tool has ended'),
    tool: described(shortText, 'Name of the tool'),
    tool_use_id: described(shortText, 'Id of the call'),
    summary: described(shortText, 'For a person, one line'),
    is_error: described(z.boolean(), 'Whether the call failed'),
    duration_ms: described(count, 'Milliseconds that the call took'),
  }),
  z.object({
    type: described(z.literal('result'), 'How the turn ended'),
    subtype: described(
      z.enum(['success', 'error_max_turns', 'error_during_execution', 'interrupted']),
      'Whether it ended well, and if not, why',
    ),
    result: described(z.string(), 'The text of the last assistant message, or the message of an error'),
    num_turns: described(count, 'Calls of the model'),
    duration_ms: described(count, 'Milliseconds that the turn took'),
    usage: described(usage, 'Tokens of the turn'),
    total_cost_usd: described(z.number().min(0).optional(), 'US dollars, where the cost is known'),
    session_id: eventSessionId,
  }),
  z.object({
    type: described(z.literal('turn_complete'), 'The turn is over, and the next message may begin'),
    message_id: described(messageId, 'The message that the turn answered'),
    session_id: eventSessionId,
  }),
  z.object({
    type: described(z.literal('error'), 'Something failed'),
    message: described(z.string().max(64 * 1024), 'What failed, for people'),
    code: described(z.string().max(100), 'Such as `budget_exceeded`'),
    fatal: described(z.boolean(), 'The agent’s process ends after it'),
  }),
] as const

/** A piece of an answer that the model is writing. It has no number, and is sent to who asks for drafts. */
export const assistantDraft = z
  .object({
    type: described(z.literal('assistant_draft'), 'The model has written more of its answer'),
    offset: described(
      count,
      'Characters (UTF-16) of the answer before this piece; 0: another answer begins. A reader that has fewer waits for the whole answer',
    ),
    text: described(
      z
        .string()
        .min(1)
        .max(64 * 1024),
      'What it has written since',
    ),
  })
  .meta({
    id: 'AssistantDraft',
    description:
      'The JSON object in `data` of an event without `id`, where `drafts` asks for them. Drafts are kept nowhere: the whole answer follows as `assistant`.',
  })

export type AssistantDraft = z.output<typeof assistantDraft>

const sequence = z.int().min(0)
const checkpointId = z.string().max(200)

/** What the session service alone says. */
const serviceStreamEvents = [
  z.object({
    type: described(z.literal('checkpoint_created'), 'The state after a turn is kept'),
    checkpoint_id: described(checkpointId, 'Id of the checkpoint'),
    after_event: described(sequence, 'Number of the newest event that belongs to it'),
    message_id: described(messageId, 'The message of the turn'),
    kind: described(z.enum(['full', 'disk_only']), 'Disk and memory, or the disk alone'),
    size_bytes: described(count, 'Bytes of disk and memory, those that it shares with others included'),
    duration_ms: described(count, 'Milliseconds that it took'),
  }),
  z.object({
    type: described(z.literal('rewound'), 'The session has gone back, or forward, to a checkpoint'),
    to_event: described(sequence, 'Number of the newest event at that checkpoint'),
    from_event: described(sequence, 'Number of the newest event before this one'),
    what: described(z.enum(['all', 'machine', 'conversation']), 'What was put back'),
    undo_checkpoint_id: described(checkpointId, 'A rewind to this checkpoint undoes it'),
  }),
  z.object({
    type: described(z.literal('capsule_created'), 'A turn has failed, and the session has made a capsule of it'),
    capsule_id: described(z.string().max(200), 'Id of the capsule'),
    url: described(z.string().max(4096), 'Whoever has it reads the session up to the event'),
    scope: described(z.enum(['read', 'fork']), 'What the link allows'),
    event: described(sequence, 'Number of the newest event that it shows'),
  }),
] as const

/** The events that clients see. */
export const streamEventSchema = z
  .discriminatedUnion('type', [...agentStreamEvents, ...serviceStreamEvents])
  .meta({ id: 'StreamEvent', description: 'The JSON object in `data` of one event of a session’s stream' })

/** The JSON object of one stream event, as clients get it. */
export type StreamEventData = z.output<typeof streamEventSchema>
