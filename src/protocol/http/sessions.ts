import { z } from 'zod'
import { envs, milliTime } from './common.ts'

const userId = z.string().min(1).max(256)

/** Text that is kept to be shown: not blank, though it may be left empty, and without the character that no database holds. */
const shown = (lengthMax: number) =>
  z
    .string()
    .max(lengthMax)
    .refine((text) => text === '' || text.trim() !== '', 'must not be blank')
    .refine((text) => !text.includes('\0'), 'must not contain NUL characters')

const toolName = z.string().min(1).max(200)

export const agentConfig = z.object({
  system_prompt: z.string().optional(),
  skills: z.record(z.string(), z.string()).optional().meta({ description: 'Path in the sandbox → text of the file' }),
  allowed_tools: z
    .array(z.string())
    .max(100)
    .refine((names) => names.every((name) => toolName.safeParse(name).success), 'must hold names of tools')
    .optional(),
  cwd: z.string().optional(),
  model: z.string().optional(),
  harness: z.string().optional(),
  max_turns: z.int().min(1).max(10_000).optional(),
  max_tokens: z.int().min(1).optional(),
  max_cost_usd: z.number().positive().optional().meta({ description: 'US dollars; needs a model with a price' }),
  envs: envs.optional(),
})

export const createSession = z.object({
  prompt: z.string().min(1).meta({ description: 'At most 256 KiB' }),
  user_id: shown(256).min(1),
  user_email: shown(1000).optional(),
  user_name: shown(1000).optional(),
  agent_config: agentConfig.optional(),
  checkpoint_id: z.string().optional(),
})

export const sendMessage = z.object({
  message: z.string().min(1).meta({ description: 'At most 256 KiB' }),
  user_id: userId,
})

export const interrupt = z.object({ user_id: userId })

export const fork = z.object({ user_id: userId })

export const restart = z.object({ user_id: userId, checkpoint_id: z.string().optional() })

export const createToken = z.object({
  user_id: userId,
  scope: z.enum(['read', 'steer']),
  ttl: z.int().min(1).max(86_400).optional().meta({ description: 'Seconds; default 3600' }),
})

export const accessToken = z.object({ token: z.string(), expiresAt: milliTime }).meta({ id: 'AccessToken' })

export const ownerQuery = z.object({ user_id: z.string().optional().meta({ description: 'Filter by owner' }) })

export const listSessionsQuery = ownerQuery.extend({
  search: z
    .string()
    .min(1)
    .max(200)
    .optional()
    .meta({ description: 'Only sessions whose title or messages hold this text, in whatever case' }),
  limit: z.coerce.number().int().min(1).max(100).optional(),
  cursor: z.string().optional(),
})

const wholeNumber = z.string().regex(/^\d{1,15}$/, 'must be a whole number')

export const eventsQuery = ownerQuery.extend({
  api_key: z.string().optional(),
  after: wholeNumber.optional().meta({ description: 'Only events above this number' }),
})

export const eventsHeaders = z.object({
  'last-event-id': wholeNumber.optional().meta({ description: 'As `after`, and stronger' }),
})

export const message = z
  .object({
    id: z.string(),
    role: z.enum(['user', 'assistant', 'system']),
    content: z.string(),
    state: z.enum(['queued', 'started', 'consumed', 'cancelled']).optional(),
    createdAt: milliTime,
  })
  .meta({ id: 'Message' })

export const event = z
  .object({
    id: z.string(),
    type: z.enum([
      'session_started',
      'sandbox_ready',
      'agent_ready',
      'turn_started',
      'turn_completed',
      'preview_ready',
      'sandbox_hibernated',
      'sandbox_resumed',
      'session_failed',
      'session_ended',
    ]),
    level: z.enum(['info', 'warning', 'error']),
    message: z.string(),
    createdAt: milliTime,
  })
  .meta({ id: 'SessionEvent' })

export const session = z
  .object({
    id: z.string(),
    status: z.enum(['running', 'ended']),
    activity: z.enum(['starting', 'working', 'idle', 'failed', 'ended']),
    sandboxId: z.string(),
    previewUrl: z.string(),
    project: z.object({
      title: z.string(),
      framework: z.string(),
      artifacts: z.array(z.object({ path: z.string(), summary: z.string() })),
    }),
    messages: z.array(message),
    events: z.array(event),
    userId: z.string(),
    usage: z
      .object({
        inputTokens: z.int().meta({ description: 'All that the model has read' }),
        cacheReadTokens: z.int().meta({ description: 'Part of the input: from a cache of the model API' }),
        cacheWriteTokens: z.int().meta({ description: 'Part of the input: written to a cache of the model API' }),
        outputTokens: z.int(),
        totalCostUsd: z.number().optional(),
      })
      .meta({ description: 'Of all model calls; the cost is left out while it is unknown' }),
    userEmail: z.string().optional(),
    userName: z.string().optional(),
    createdAt: milliTime,
    updatedAt: milliTime,
  })
  .meta({ id: 'Session' })

export const sessionList = z
  .object({ data: z.array(session), nextCursor: z.string().nullable() })
  .meta({ id: 'SessionList' })

export const endedSession = z.object({ id: z.string(), status: z.literal('ended') }).meta({ id: 'EndedSession' })
