import { z } from 'zod'
import { logEvent, logEventTypes } from '../log-events.ts'

export const pageLimitMax = 1000
const position = z.string().regex(/^(\d{1,15}|newest)$/, 'must be a whole number or "newest"')

export const eventsQuery = z.object({
  api_key: z.string().optional().describe('The API key, for clients that cannot set headers'),
  follow: z
    .enum(['true', 'false'])
    .default('true')
    .meta({ description: '`false`: one page as JSON, in place of a stream', examples: ['false'] }),
  after: position
    .optional()
    .describe('Only events above this number; `newest`: only those to come. Default: all that are kept'),
  limit: z
    .string()
    .regex(/^\d{1,4}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.int().min(1).max(pageLimitMax))
    .optional()
    .meta({ description: 'Most events of a page, 1 to 1000', default: '100' }),
  type: z
    .string()
    .min(1)
    .optional()
    .meta({
      description: 'Types with commas between; `sandbox.*` is all that begin with `sandbox.`',
      examples: [logEventTypes[0]],
    }),
  sandbox: z.string().min(1).optional().describe('Events of the sandbox of this id or name'),
  session: z.string().min(1).optional().describe('Events of the session of this id or name'),
  tag: z
    .string()
    .min(1)
    .optional()
    .describe('`key=value`, or `key` for any value: a tag that the sandbox of the event had at that time'),
})

export const eventsHeaders = z.object({
  'last-event-id': z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .optional()
    .describe('As `after`, and stronger'),
})

export const eventPage = z
  .object({
    events: z.array(logEvent).describe('In order'),
    next: z.int().describe('Value of `after` for the next page'),
    newest: z.int().describe('Number of the newest event: `next` has reached it on the last page'),
    oldest: z.int().describe('Number of the oldest event that is kept'),
  })
  .meta({
    id: 'EventPage',
    examples: [{ events: logEvent.meta()?.['examples'] ?? [], next: 1, newest: 1, oldest: 1 }],
  })
