import { z } from 'zod'
import { milliTime } from './common.ts'
import { at, ids, showExample } from './examples.ts'

const url = z
  .string()
  .describe('Where events go: `https://`, port 443 or 8443, a public address; or what `ATOLL_WEBHOOK_TARGETS` allows')
const secret = z
  .string()
  .describe('16 to 256 printable ASCII characters that sign each delivery (Standard Webhooks); left out: one is made')
const eventTypes = z
  .array(z.string().max(128))
  .max(100)
  .describe('Types of `GET /api/events`, or `prefix.*`; empty: all')
const name = z.string().max(128).describe('For people')
const payload = z
  .enum(['full', 'thin'])
  .describe('`full`: with the facts of the event. `thin`: ids alone, for receivers that read the rest from the API')

/** In a create of a sandbox. */
export const inlineWebhooks = z
  .array(z.strictObject({ url, secret: secret.optional(), eventTypes: eventTypes.optional() }))
  .max(5)
  .describe('Called for all that this sandbox does, from its creation on; needs the scope `webhook`')

export const registeredWebhooks = z
  .array(
    z.object({
      id: z.string().describe('Id of the destination'),
      url: z.string().describe('Where events go'),
      secret: z.string().optional().describe('The secret that was made, shown this once'),
    }),
  )
  .describe('Destinations that were registered')

export const createWebhook = z.object({
  url,
  name: name.nullish().describe('For people'),
  secret: secret.nullish().describe('As in `webhooks` of a new sandbox'),
  eventTypes: eventTypes.nullish().describe('Types of `GET /api/events`, or `prefix.*`; empty: all'),
  sandboxId: z.string().nullish().describe('Only what happens to this sandbox, with whose record the destination goes'),
  enabled: z.boolean().nullish().describe('Default true'),
  metadata: z
    .record(z.string(), z.string())
    .nullish()
    .describe('Headers of each delivery, at most 20; they are never shown again'),
  payload: payload.optional().describe('Default `full`'),
})
showExample(createWebhook, { url: 'https://example.com/hook', eventTypes: ['sandbox.*'] })

export const updateWebhook = z.object({
  url: url.optional(),
  name: name.optional(),
  eventTypes: eventTypes.nullish().describe('`null` clears the filter'),
  enabled: z.boolean().optional().describe('While it is false events wait, for a day and up to 10 000'),
  payload: payload.optional(),
  rotateSecret: z.boolean().optional().describe('Makes a new secret; the former one signs too for a day'),
})
showExample(updateWebhook, { eventTypes: ['session.*'], rotateSecret: true })

const fields = {
  id: z.string().describe('Id of the destination, `whk_…`'),
  name: z.string().nullable().describe('Its name'),
  url: z.string().describe('Where events go'),
  eventTypes: z.array(z.string()).describe('As they were given; empty: all'),
  sandboxId: z.string().nullable().describe('The sandbox that it is of; `null`: all'),
  enabled: z.boolean().describe('Whether events are sent, or wait'),
  hasSecret: z.literal(true).describe('Deliveries are signed'),
  payload,
  disabledReason: z.string().nullable().describe('Why the server has disabled it'),
  failingSince: milliTime.nullable().describe('Since when each attempt has failed'),
  droppedCount: z.int().describe('Messages that were not sent because it was disabled for too long'),
  createdAt: milliTime.describe('When it was made'),
  updatedAt: milliTime.describe('When it was changed'),
}

const example = {
  ...{ id: ids.webhook, name: null, url: 'https://example.com/hook', eventTypes: ['sandbox.*'], sandboxId: null },
  ...{ enabled: true, hasSecret: true, payload: 'full', disabledReason: null, failingSince: null, droppedCount: 0 },
  ...{ createdAt: at.millisecond, updatedAt: at.millisecond },
}

export const webhook = z.object(fields).meta({ id: 'Webhook', examples: [example] })

export const webhookWithSecret = z
  .object({ ...fields, secret: z.string().optional().describe('The secret, after a creation or a rotation') })
  .meta({ id: 'WebhookWithSecret', examples: [{ ...example, secret: 'whsec_…' }] })

export const webhookList = z.object({ data: z.array(webhook).describe('Newest first') })

export const webhookSecret = z
  .object({ secret: z.string().describe('The secret') })
  .meta({ examples: [{ secret: 'whsec_…' }] })

export const webhookTest = z
  .object({
    ok: z.literal(true).describe('It is on its way'),
    eventType: z.string().describe('The type that it says'),
    messageId: z.string().describe('Id of the message'),
  })
  .meta({ examples: [{ ok: true, eventType: 'sandbox.created', messageId: ids.delivery }] })

const delivery = z
  .object({
    id: z.string().describe('Id of the message, the same for each attempt: the header `svix-id`'),
    attemptId: z.string().describe('Id of the attempt'),
    eventType: z.string().describe('Type of the event'),
    status: z.enum(['success', 'pending', 'failed']).describe('`pending`: there was no attempt yet'),
    responseStatusCode: z.int().optional().describe('Status of the answer'),
    error: z.string().optional().describe('Why the attempt failed'),
    durationMs: z.int().optional().describe('How long the attempt took'),
    nextAttemptAt: milliTime.optional().describe('When the message is attempted again'),
    timestamp: milliTime.describe('When the attempt began, or the message was made'),
  })
  .meta({ id: 'WebhookDelivery' })

export const deliveryList = z
  .object({ data: z.array(delivery).describe('A row for each attempt, at most 50, newest first') })
  .meta({
    examples: [
      {
        data: [
          {
            id: ids.delivery,
            attemptId: '1',
            eventType: 'sandbox.created',
            status: 'pending',
            timestamp: at.millisecond,
          },
        ],
      },
    ],
  })

export const deliveredMessage = z
  .object({
    id: z.string().describe('Id of the message'),
    eventType: z.string().describe('Type of the event'),
    eventId: z.string().describe('Name of the event'),
    state: z
      .enum(['pending', 'success', 'failed', 'dropped'])
      .describe('`dropped`: its destination was disabled for too long'),
    payload: z.unknown().describe('The body, as it is sent; `null` once it is dropped'),
    timestamp: milliTime.describe('When it was made'),
  })
  .meta({
    id: 'WebhookMessage',
    examples: [
      {
        ...{
          id: ids.delivery,
          eventType: 'sandbox.created',
          eventId: `${ids.sandbox}:sandbox.created`,
          state: 'pending',
        },
        ...{ payload: { type: 'sandbox.created' }, timestamp: at.millisecond },
      },
    ],
  })

export const redelivered = z
  .object({ ok: z.literal(true).describe('A new attempt is on its way') })
  .meta({ examples: [{ ok: true }] })
