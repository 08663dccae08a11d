import { z } from 'zod'
import { at, ids, previewHost, showExample } from './examples.ts'
import { egressPolicy } from './egress.ts'
import { manifest } from './images.ts'
import { envs, milliTime, resourceName, sessionError } from './common.ts'
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

export const agentConfig = z.strictObject({
  system_prompt: z.string().optional().describe('Added to the instructions of the harness'),
  skills: z.record(z.string(), z.string()).optional().describe('Path in the sandbox → text of the file'),
  allowed_tools: z
    .array(z.string())
    .max(100)
    .refine((names) => names.every((name) => toolName.safeParse(name).success), 'must hold names of tools')
    .optional()
    .describe('Names of tools that the agent may use; default all'),
  cwd: z.string().optional().meta({
    description: 'Working directory of the agent. An image that names one is another default',
    default: '/workspace/app',
  }),
  model: z.string().optional().describe('Name of a model that the server offers'),
  harness: z.string().optional().meta({ description: '`pi`, `claude` or `acp:<command>`', default: 'pi' }),
  max_turns: z.int().min(1).max(10_000).optional().describe('Most calls of the model in one turn'),
  max_tokens: z.int().min(1).optional().describe('Most tokens of the session'),
  max_cost_usd: z.number().positive().optional().describe('US dollars; needs a model with a price'),
  envs: envs.optional(),
  checkpoints: z
    .enum(['turn', 'disk', 'none'])
    .optional()
    .describe(
      'What is kept after each turn: disk and memory, the disk alone, or nothing; default what the server keeps',
    ),
  secret_envs: z
    .array(z.string())
    .max(100)
    .optional()
    .describe('Names of `envs` that a fork for another person does not get'),
  capsule_on_error: z.boolean().optional().describe('A turn that fails makes a capsule of scope `read`'),
})

const sessionName = resourceName.describe('Serves wherever an id of a session does. Unique while the session runs')

export const createSession = z.object({
  name: sessionName.optional(),
  prompt: z.string().min(1).describe('At most 256 KiB'),
  user_id: shown(256).min(1).describe('Your id of the person who owns it'),
  user_email: shown(1000).optional().describe('Shown with the session'),
  user_name: shown(1000).optional().describe('Shown with the session'),
  agent_config: agentConfig.optional().describe('How the agent works'),
  checkpoint_id: z
    .string()
    .optional()
    .describe('Begins in a sandbox started from this checkpoint: its id, or `SANDBOX/NAME`'),
  snapshot: z.string().max(128).nullish().describe('Begins in a sandbox started from the image of this name'),
  image: manifest.nullish().describe('Begins in a sandbox started from this image, which is built first'),
  volumes: mounts.optional().describe('Volumes to mount in its sandbox, as in `POST /api/sandboxes`'),
  secret_store: z.string().max(256).optional().describe('Secret store of its sandbox, as in `POST /api/sandboxes`'),
  egress: egressPolicy.optional().describe('What its sandbox may reach; the model gateway is always reachable'),
})
showExample(createSession, { prompt: 'Build a page that shows the time', user_id: 'ada' })

export const sendMessage = z.object({
  message: z.string().min(1).describe('At most 256 KiB'),
  user_id: userId.describe('Your id of the owner'),
})
showExample(sendMessage, { message: 'Make it blue', user_id: 'ada' })

export const interrupt = z.object({ user_id: userId.describe('Your id of the owner') })
showExample(interrupt, { user_id: 'ada' })

const eventNumber = z.int().min(1).max(2_147_483_647)

/** A place in a session: exactly one of three. */
export const place = z
  .strictObject({
    message_id: z.string().min(1).max(200).optional().describe('The end of the turn of this message'),
    event_id: eventNumber.optional().describe('The number of an event of the stream'),
    checkpoint_id: z.string().min(1).max(200).optional().describe('A checkpoint of the session'),
  })
  .refine(
    (value) => Object.values(value).filter((one) => one !== undefined).length === 1,
    'must hold one of message_id, event_id and checkpoint_id',
  )

/** How one of several forks differs. */
const variant = z
  .strictObject({
    message: z.string().min(1).optional().describe('The first message that it gets'),
    model: z.string().optional().describe('Short for `agent_config.model`'),
    system_prompt: z.string().optional().describe('Short for `agent_config.system_prompt`'),
    envs: envs.optional().describe('Short for `agent_config.envs`: beside those of the source'),
    agent_config: agentConfig
      .omit({ skills: true, cwd: true, harness: true })
      .optional()
      .describe('What differs from the configuration of the source'),
  })
  .refine(
    ({ agent_config: config = {}, model, system_prompt, envs: own }) =>
      [
        [config.model, model],
        [config.system_prompt, system_prompt],
        [config.envs, own],
      ].every(
        ([long, short]) => long === undefined || short === undefined || JSON.stringify(long) === JSON.stringify(short),
      ),
    'must not give one field two values',
  )

export const fork = z.object({
  user_id: userId.describe('Your id of the owner'),
  name: sessionName.optional().describe('Name of the new session'),
  at: place.optional().describe('Where it begins; default: now, of an idle session'),
  count: z.int().min(1).max(20).optional().describe('How many; the answer is then `{sessions}`'),
  variants: z.array(variant).min(1).max(20).optional().describe('How each differs; the answer is then `{sessions}`'),
})
showExample(fork, { user_id: 'ada' })

export const restart = z.object({
  user_id: userId.describe('Your id of the owner'),
  checkpoint_id: z.string().optional().describe('The checkpoint to begin from again'),
})
showExample(restart, { user_id: 'ada' })

export const createToken = z.object({
  user_id: userId.describe('Your id of the owner'),
  scope: z.enum(['read', 'steer']).describe('`read` follows the session, `steer` also sends messages and interrupts'),
  ttl: z.int().min(1).max(86_400).optional().meta({ description: 'Seconds', default: 3600 }),
})
showExample(createToken, { user_id: 'ada', scope: 'read', ttl: 600 })

export const accessToken = z
  .object({
    token: z.string().describe('Passed as `?token=`'),
    expiresAt: milliTime.describe('When it stops working'),
  })
  .meta({ id: 'AccessToken', examples: [{ token: 'atoll_…', expiresAt: at.millisecond }] })

export const ownerQuery = z.object({ user_id: z.string().optional().describe('Filter by owner') })

export const getSessionQuery = ownerQuery.extend({
  branch: z.enum(['all']).optional().describe('`all`: also messages of turns that a rewind has left'),
})

export const listSessionsQuery = ownerQuery.extend({
  search: z
    .string()
    .min(1)
    .max(200)
    .optional()
    .describe('Only sessions whose title or messages hold this text, in whatever case'),
  limit: z.coerce.number().int().min(1).max(100).optional().describe('Most sessions on a page'),
  cursor: z.string().optional().describe('`nextCursor` of the page before'),
})

const wholeNumber = z.string().regex(/^\d{1,15}$/, 'must be a whole number')

export const eventsQuery = ownerQuery.extend({
  api_key: z.string().optional().describe('The API key, for clients that cannot set headers'),
  after: z
    .union([wholeNumber, z.literal('newest')])
    .optional()
    .describe(
      'Only events above this number; `newest`: with what comes, after an event that has the number of the newest alone',
    ),
  drafts: z
    .enum(['true', 'false'])
    .optional()
    .describe('`true`: also what the model writes before its answer is whole, as events without `id`'),
})

export const eventsHeaders = z.object({
  'last-event-id': wholeNumber.optional().describe('As `after`, and stronger'),
})

export const message = z
  .object({
    id: z.string().describe('Id of the message, `msg_…`'),
    role: z.enum(['user', 'assistant', 'system']).describe('Who wrote it'),
    content: z.string().describe('Its text'),
    state: z
      .enum(['queued', 'started', 'consumed', 'cancelled'])
      .optional()
      .describe('Of a user’s message: how far the agent is with it'),
    left: z.literal(true).optional().describe('A rewind has left its turn; only with `branch=all`'),
    createdAt: milliTime.describe('When it was written'),
  })
  .meta({ id: 'Message' })

export const event = z
  .object({
    id: z.string().describe('Id of the event, `evt_…`'),
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
        'session_rewound',
        'session_paused',
        'session_continued',
        'session_failed',
        'session_ended',
      ])
      .describe('What happened'),
    level: z.enum(['info', 'warning', 'error']).describe('How grave it is'),
    message: z.string().describe('The same for people'),
    createdAt: milliTime.describe('When it happened'),
  })
  .meta({ id: 'SessionEvent' })

export const shownSession = {
  id: ids.session,
  status: 'running',
  activity: 'starting',
  sandboxId: ids.sandbox,
  previewUrl: `https://${previewHost}`,
  agent: { harness: 'pi', model: 'anthropic/claude-sonnet-4-5' },
  project: { title: 'Build a page that shows the time', framework: '', artifacts: [] },
  messages: [
    {
      id: ids.message,
      role: 'user',
      content: 'Build a page that shows the time',
      state: 'queued',
      createdAt: at.millisecond,
    },
  ],
  events: [{ id: ids.event, type: 'session_started', level: 'info', message: 'started', createdAt: at.millisecond }],
  userId: 'ada',
  usage: { inputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 0 },
  createdAt: at.millisecond,
  updatedAt: at.millisecond,
} as const

export const session = z
  .object({
    id: z.string().describe('Id of the session, `session_…`'),
    name: z.string().optional().describe('Its name, if it has one'),
    status: z.enum(['running', 'ended']).describe('`running` until it is ended'),
    activity: z.enum(['starting', 'working', 'idle', 'paused', 'failed', 'ended']).describe('What it does now'),
    reason: z.enum(['budget']).optional().describe('Why it is `paused`: its budget is spent, and messages wait'),
    archivedReason: z.string().optional().describe('Why nobody needs it any more; a message takes that back'),
    fork: z
      .object({
        atEvent: z.int().describe('Number of the event that was asked for'),
        afterEvent: z.int().describe('Number of the newest event that it has'),
        exact: z.boolean().describe('Nothing of a turn lies between the two'),
        checkpointId: z.string().describe('The checkpoint that it begins from'),
        messageId: z.string().nullable().describe('The message of the last turn that it has'),
      })
      .optional()
      .describe('In the answer of a fork: where it begins'),
    forkedFrom: z.string().optional().describe('Id of the session that it goes on from'),
    sandboxId: z.string().describe('The sandbox of its agent'),
    previewUrl: z.string().describe('Address under which port 3000 of its sandbox answers'),
    agent: z
      .object({
        harness: z.string().describe('`pi`, `claude` or `acp:<command>`'),
        model: z.string().describe('The model that it asks'),
        maxTokens: z.int().optional().describe('Most tokens of the session'),
        maxCostUsd: z.number().optional().describe('Most US dollars of the session'),
        checkpoints: z.enum(['turn', 'disk', 'none']).optional().describe('What is kept after each turn'),
      })
      .describe('How it works, and what it may cost; a limit that is left out is none'),
    project: z
      .object({
        title: z.string().describe('A title made from the prompt'),
        framework: z.string().describe('Framework that the agent’s project uses; empty while unknown'),
        artifacts: z
          .array(
            z.object({
              path: z.string().describe('Path of the file in the sandbox'),
              summary: z.string().describe('What became of it, in a few words'),
            }),
          )
          .describe('Files that the agent made or changed'),
      })
      .describe('What the agent makes'),
    messages: z.array(message).describe('Its messages, oldest first'),
    events: z.array(event).describe('What happened to it, oldest first'),
    userId: z.string().describe('Your id of its owner'),
    usage: z
      .object({
        inputTokens: z.int().describe('All that the model has read'),
        cacheReadTokens: z.int().describe('Part of the input: from a cache of the model API'),
        cacheWriteTokens: z.int().describe('Part of the input: written to a cache of the model API'),
        outputTokens: z.int().describe('All that the model has written'),
        totalCostUsd: z.number().optional().describe('US dollars'),
      })
      .describe('Of all model calls; the cost is left out while it is unknown'),
    userEmail: z.string().optional().describe('Given at its creation'),
    userName: z.string().optional().describe('Given at its creation'),
    createdAt: milliTime.describe('When it was created'),
    updatedAt: milliTime.describe('When it last changed'),
  })
  .meta({ id: 'Session', examples: [shownSession] })

const failedFork = z.object({ error: sessionError.shape.error.describe('Why there is none') })

/** One session, or as many as were asked for. */
export const forkAnswer = z.union([
  session,
  z
    .object({ sessions: z.array(z.union([session, failedFork])).describe('In the order of the variants') })
    .meta({ id: 'ForkedSessions', examples: [{ sessions: [shownSession] }] }),
])

export const sessionList = z
  .object({
    data: z.array(session).describe('One page, newest first'),
    nextCursor: z.string().nullable().describe('Value of `cursor` for the next page; null on the last'),
  })
  .meta({ id: 'SessionList', examples: [{ data: [shownSession], nextCursor: null }] })

export const endedSession = z
  .object({
    id: z.string().describe('Id of the session'),
    status: z.literal('ended').describe('Its state now'),
  })
  .meta({ id: 'EndedSession', examples: [{ id: ids.session, status: 'ended' }] })
