import { z } from 'zod'
import { milliTime, resourceName } from './common.ts'
import { at, ids, showExample } from './examples.ts'

const scope = z.enum(['read', 'fork'])
const eventNumber = z.int().min(1).max(2_147_483_647)
const yearSeconds = 31_536_000

export const createCapsule = z.object({
  user_id: z.string().min(1).max(256).describe('Your id of the owner'),
  event_id: eventNumber
    .optional()
    .describe('Number of the newest event that it shows; default: the newest of the stream'),
  scope: scope.describe(
    '`read` shows the session up to the event, `fork` also begins sessions from the disk of that moment',
  ),
  expires_in: z.int().min(1).max(yearSeconds).optional().meta({ description: 'Seconds', default: 604_800 }),
})
showExample(createCapsule, { user_id: 'ada', event_id: 1, scope: 'read', expires_in: 86_400 })

const capsuleFields = {
  id: z.string().describe('Id of the capsule, `mom_…`'),
  scope: scope.describe('What its link allows'),
  event: z.int().describe('Number of the newest event that it shows'),
  createdAt: milliTime.describe('When it was made'),
  expiresAt: milliTime.describe('When its link stops working'),
}
const shownCapsule = {
  id: ids.capsule,
  scope: 'read',
  event: 42,
  createdAt: at.millisecond,
  expiresAt: at.millisecond,
} as const

export const madeCapsule = z
  .object({
    ...capsuleFields,
    url: z.string().describe('Whoever has it sees the moment'),
    token: z.string().describe('What the link holds. Shown this once'),
    exact: z
      .boolean()
      .optional()
      .describe('Of scope `fork`: whether the disk that is kept is that of the event, or of an earlier moment'),
  })
  .meta({
    id: 'MadeCapsule',
    examples: [
      { ...shownCapsule, url: `https://api.example.com/v1/capsules/${ids.capsuleToken}`, token: ids.capsuleToken },
    ],
  })

export const capsule = z
  .object({
    ...capsuleFields,
    reason: z.literal('error').optional().describe('The session has made it itself, as a turn had failed'),
    forks: z.int().describe('Sessions that were begun from it'),
  })
  .meta({ id: 'Capsule', examples: [{ ...shownCapsule, forks: 0 }] })

export const capsuleList = z
  .object({ data: z.array(capsule).describe('Those that live, newest first') })
  .meta({ id: 'CapsuleList', examples: [{ data: [{ ...shownCapsule, forks: 0 }] }] })

const rowsMax = 500
const limit = z.coerce.number().int().min(1).max(rowsMax).optional()

export const readCapsuleQuery = z.object({
  cursor: z
    .string()
    .regex(/^msg_[a-z0-9]{12,32}$/, 'must be a `nextCursor`')
    .optional()
    .describe('`nextCursor` of the page before'),
  limit: limit.describe('Most messages on a page; default 100'),
})

export const capsuleView = z
  .object({
    session: z
      .object({
        title: z.string().describe('A title made from its first prompt'),
        framework: z.string().describe('Framework of its project; empty while unknown'),
        createdAt: milliTime.describe('When it was created'),
      })
      .describe('The session that the moment is of'),
    event: z.int().describe('Number of the newest event that is shown'),
    scope: scope.describe('What the link allows'),
    expiresAt: milliTime.describe('When the link stops working'),
    messages: z
      .array(
        z.object({
          id: z.string().describe('Id of the message'),
          role: z.enum(['user', 'assistant']).describe('Who wrote it'),
          content: z.string().describe('Its text'),
          createdAt: milliTime.describe('When it was written'),
        }),
      )
      .describe('What was said by then in the branch of then, oldest first'),
    nextCursor: z.string().nullable().describe('Value of `cursor` for the next page; null on the last'),
  })
  .meta({
    id: 'CapsuleView',
    examples: [
      {
        session: { title: 'Build a page that shows the time', framework: 'vite', createdAt: at.millisecond },
        event: 42,
        scope: 'read',
        expiresAt: at.millisecond,
        messages: [
          { id: ids.message, role: 'user', content: 'Build a page that shows the time', createdAt: at.millisecond },
        ],
        nextCursor: null,
      },
    ],
  })

export const capsuleEventsQuery = z.object({
  after: z.coerce.number().int().min(0).max(2_147_483_647).optional().describe('Only events above this number'),
  limit: limit.describe('Most events on a page; default 100'),
})

export const capsuleEvents = z
  .object({
    events: z
      .array(
        z.object({
          id: z.int().describe('Number of the event in its session'),
          data: z.looseObject({ type: z.string().describe('What happened') }).describe('A `StreamEvent`'),
        }),
      )
      .describe('In order'),
    nextAfter: z.int().nullable().describe('Value of `after` for the next page; null on the last'),
  })
  .meta({
    id: 'CapsuleEvents',
    examples: [{ events: [{ id: 1, data: { type: 'ready', harness: 'pi', version: '1' } }], nextAfter: null }],
  })

export const forkCapsule = z.object({
  user_id: z.string().min(1).max(256).describe('Your id of the owner of the new session, who may be another person'),
  name: resourceName.optional().describe('Name of the new session'),
})
showExample(forkCapsule, { user_id: 'bob' })
