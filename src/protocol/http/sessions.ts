import { z } from 'zod'
import { manifest } from './images.ts'
import { envs, milliTime } from './common.ts'
import { mounts } from './volumes.ts'

const userId = z.string().min(1).max(256)

/** Text that is kept to be shown: not blank, though it may be empty, and without NUL, which no database holds. */
const shown = (lengthMax: number) =>
  z
    .string()
    .max(lengthMax)
    .refine((text) => text === '' || text.trim() !== '', 'must not be blank')
    .refine((text) => !text.includes('\0'), 'must not contain NUL characters')

const toolName = z.string().min(1).max(200)

export const agentConfig = z.object({
  system_prompt: z.string().optional().meta({ description: 'Added to the instructions of the harness' }),
  skills: z.record(z.string(), z.string()).optional().meta({ description: 'Path in the sandbox → text of the file' }),
  allowed_tools: z
    .array(z.string())
    .max(100)
    .refine((names) => names.every((name) => toolName.safeParse(name).success), 'must hold names of tools')
    .optional()
    .meta({ description: 'Names of tools that the agent may use; default all' }),
  cwd: z.string().optional().meta({ description: 'Working directory of the agent, default `/workspace/app`' }),
  model: z.string().optional().meta({ description: 'Name of a model that the server offers' }),
  harness: z.string().optional().meta({ description: '`pi`, `claude` or `acp:<command>`' }),
  max_turns: z.int().min(1).max(10_000).optional().meta({ description: 'Most calls of the model in one turn' }),
  max_tokens: z.int().min(1).optional().meta({ description: 'Most tokens of the session' }),
  max_cost_usd: z.number().positive().optional().meta({ description: 'US dollars; needs a model with a price' }),
  envs: envs.optional(),
})

export const createSession = z.object({
  prompt: z.string().min(1).meta({ description: 'At most 256 KiB' }),
  user_id: shown(256).min(1).meta({ description: 'Your id of the person who owns it' }),
  user_email: shown(1000).optional().meta({ description: 'Shown with the session' }),
  user_name: shown(1000).optional().meta({ description: 'Shown with the session' }),
  agent_config: agentConfig.optional().meta({ description: 'How the agent works' }),
  checkpoint_id: z.string().optional().meta({ description: 'Begins in a sandbox started from this checkpoint' }),
  snapshot: z
    .string()
    .max(128)
    .nullish()
    .meta({ description: 'Begins in a sandbox started from the image of this name' }),
  image: manifest.nullish().meta({ description: 'Begins in a sandbox started from this image, which is built first' }),
  volumes: mounts.optional().meta({ description: 'Volumes to mount in its sandbox, as in `POST /api/sandboxes`' }),
})

export const sendMessage = z.object({
  message: z.string().min(1).meta({ description: 'At most 256 KiB' }),
  user_id: userId.meta({ description: 'Your id of the owner' }),
})

export const interrupt = z.object({ user_id: userId.meta({ description: 'Your id of the owner' }) })

export const fork = z.object({ user_id: userId.meta({ description: 'Your id of the owner' }) })

export const restart = z.object({
  user_id: userId.meta({ description: 'Your id of the owner' }),
  checkpoint_id: z.string().optional().meta({ description: 'The checkpoint to begin from again' }),
})

export const createToken = z.object({
  user_id: userId.meta({ description: 'Your id of the owner' }),
  scope: z
    .enum(['read', 'steer'])
    .meta({ description: '`read` follows the session, `steer` also sends messages and interrupts' }),
  ttl: z.int().min(1).max(86_400).optional().meta({ description: 'Seconds; default 3600' }),
})

export const accessToken = z
  .object({
    token: z.string().meta({ description: 'Passed as `?token=`' }),
    expiresAt: milliTime.meta({ description: 'When it stops working' }),
  })
  .meta({ id: 'AccessToken' })

export const ownerQuery = z.object({ user_id: z.string().optional().meta({ description: 'Filter by owner' }) })

export const listSessionsQuery = ownerQuery.extend({
  search: z
    .string()
    .min(1)
    .max(200)
    .optional()
    .meta({ description: 'Only sessions whose title or messages hold this text, in whatever case' }),
  limit: z.coerce.number().int().min(1).max(100).optional().meta({ description: 'Most sessions on a page' }),
  cursor: z.string().optional().meta({ description: '`nextCursor` of the page before' }),
})

const wholeNumber = z.string().regex(/^\d{1,15}$/, 'must be a whole number')

export const eventsQuery = ownerQuery.extend({
  api_key: z.string().optional().meta({ description: 'The API key, for clients that cannot set headers' }),
  after: wholeNumber.optional().meta({ description: 'Only events above this number' }),
})

export const eventsHeaders = z.object({
  'last-event-id': wholeNumber.optional().meta({ description: 'As `after`, and stronger' }),
})

export const message = z
  .object({
    id: z.string().meta({ description: 'Id of the message, `msg_…`' }),
    role: z.enum(['user', 'assistant', 'system']).meta({ description: 'Who wrote it' }),
    content: z.string().meta({ description: 'Its text' }),
    state: z
      .enum(['queued', 'started', 'consumed', 'cancelled'])
      .optional()
      .meta({ description: 'Of a user’s message: how far the agent is with it' }),
    createdAt: milliTime.meta({ description: 'When it was written' }),
  })
  .meta({ id: 'Message' })

export const event = z
  .object({
    id: z.string().meta({ description: 'Id of the event, `evt_…`' }),
    type: z
      .enum([
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
      ])
      .meta({ description: 'What happened' }),
    level: z.enum(['info', 'warning', 'error']).meta({ description: 'How grave it is' }),
    message: z.string().meta({ description: 'The same for people' }),
    createdAt: milliTime.meta({ description: 'When it happened' }),
  })
  .meta({ id: 'SessionEvent' })

export const session = z
  .object({
    id: z.string().meta({ description: 'Id of the session, `session_…`' }),
    status: z.enum(['running', 'ended']).meta({ description: '`running` until it is ended' }),
    activity: z.enum(['starting', 'working', 'idle', 'failed', 'ended']).meta({ description: 'What it does now' }),
    sandboxId: z.string().meta({ description: 'The sandbox of its agent' }),
    previewUrl: z.string().meta({ description: 'Address under which port 3000 of its sandbox answers' }),
    project: z
      .object({
        title: z.string().meta({ description: 'A title made from the prompt' }),
        framework: z.string().meta({ description: 'Framework that the agent’s project uses; empty while unknown' }),
        artifacts: z
          .array(
            z.object({
              path: z.string().meta({ description: 'Path of the file in the sandbox' }),
              summary: z.string().meta({ description: 'What became of it, in a few words' }),
            }),
          )
          .meta({ description: 'Files that the agent made or changed' }),
      })
      .meta({ description: 'What the agent makes' }),
    messages: z.array(message).meta({ description: 'Its messages, oldest first' }),
    events: z.array(event).meta({ description: 'What happened to it, oldest first' }),
    userId: z.string().meta({ description: 'Your id of its owner' }),
    usage: z
      .object({
        inputTokens: z.int().meta({ description: 'All that the model has read' }),
        cacheReadTokens: z.int().meta({ description: 'Part of the input: from a cache of the model API' }),
        cacheWriteTokens: z.int().meta({ description: 'Part of the input: written to a cache of the model API' }),
        outputTokens: z.int().meta({ description: 'All that the model has written' }),
        totalCostUsd: z.number().optional().meta({ description: 'US dollars' }),
      })
      .meta({ description: 'Of all model calls; the cost is left out while it is unknown' }),
    userEmail: z.string().optional().meta({ description: 'Given at its creation' }),
    userName: z.string().optional().meta({ description: 'Given at its creation' }),
    createdAt: milliTime.meta({ description: 'When it was created' }),
    updatedAt: milliTime.meta({ description: 'When it last changed' }),
  })
  .meta({ id: 'Session' })

export const sessionList = z
  .object({
    data: z.array(session).meta({ description: 'One page, newest first' }),
    nextCursor: z.string().nullable().meta({ description: 'Value of `cursor` for the next page; null on the last' }),
  })
  .meta({ id: 'SessionList' })

export const endedSession = z
  .object({
    id: z.string().meta({ description: 'Id of the session' }),
    status: z.literal('ended').meta({ description: 'Its state now' }),
  })
  .meta({ id: 'EndedSession' })
