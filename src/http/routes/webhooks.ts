import type { z } from 'zod'
import { defined } from '../../lib/defined.ts'
import { webhooks as wire } from '../../protocol/http/index.ts'
import type { Delivery, Destination } from '../../webhook/index.ts'
import { routesOf } from '../server/route.ts'
import { milliseconds } from '../server/time.ts'

const route = routesOf('Webhooks', 'webhook')
const path = '/api/webhooks/:webhookId'
// Each of these calls is made by OpenComputer's SDK.
const lenient = true
const ofAll = true

export const webhookRoutes = [
  route('POST', '/api/webhooks', {
    id: 'createWebhook',
    ...{ lenient, ofAll },
    summary: 'Be called when something happens',
    description:
      'Signed as Standard Webhooks says, at least once, with the same id for each attempt. It gets what happens from now on.',
    body: wire.createWebhook,
    creates: true,
    answers: { 201: { description: 'The destination with its secret', body: wire.webhookWithSecret } },
    errors: ['quota_exceeded', 'not_found'],
    async handle({ orgId, body, creation, deps }) {
      const { url, name, secret, eventTypes, sandboxId, enabled, metadata, payload } = body
      const optional = { name, secret, eventTypes, sandboxId, isEnabled: enabled, headers: metadata, payload }
      const given = Object.fromEntries(
        Object.entries(optional).filter(([, value]) => value !== null && value !== undefined),
      )
      const made = await deps.webhooks.create(orgId, { url, ...given }, { creation })
      return { statusCode: 201, body: { ...webhookBody(made.destination), secret: made.secret } }
    },
  }),
  route('GET', '/api/webhooks', {
    id: 'listWebhooks',
    ...{ lenient, ofAll },
    summary: 'List destinations',
    answers: { 200: { description: 'All of them', body: wire.webhookList } },
    answer: async ({ orgId, deps }) => ({ data: (await deps.webhooks.list(orgId)).map(webhookBody) }),
  }),
  route('GET', path, {
    id: 'getWebhook',
    ...{ lenient, ofAll },
    summary: 'Read a destination',
    answers: { 200: { description: 'The destination', body: wire.webhook } },
    answer: async ({ orgId, params, deps }) => webhookBody(await deps.webhooks.get(orgId, params.webhookId)),
  }),
  route('GET', `${path}/secret`, {
    id: 'getWebhookSecret',
    audited: true,
    ...{ lenient, ofAll },
    summary: 'Read the secret of a destination',
    answers: { 200: { description: 'The secret', body: wire.webhookSecret } },
    errors: ['conflict'],
    answer: async ({ orgId, params, deps }) => ({ secret: await deps.webhooks.secret(orgId, params.webhookId) }),
  }),
  route('PATCH', path, {
    id: 'updateWebhook',
    ...{ lenient, ofAll },
    summary: 'Change a destination',
    description: 'What is left out stays. One that is enabled again gets what has waited for it.',
    body: wire.updateWebhook,
    answers: {
      200: { description: 'The destination, after a rotation with its secret', body: wire.webhookWithSecret },
    },
    async answer({ orgId, params, body, deps }) {
      const { url, name, eventTypes, enabled: isEnabled, payload, rotateSecret } = body
      const change = defined({ url, name, eventTypes, isEnabled, payload, rotateSecret })
      const { destination, secret } = await deps.webhooks.update(orgId, params.webhookId, change)
      return { ...webhookBody(destination), ...defined({ secret }) }
    },
  }),
  route('DELETE', path, {
    id: 'deleteWebhook',
    ...{ lenient, ofAll },
    summary: 'Delete a destination with its deliveries',
    answers: { 204: { description: 'It is gone' } },
    answer: ({ orgId, params, deps }) => deps.webhooks.delete(orgId, params.webhookId),
  }),
  route('POST', `${path}/test`, {
    id: 'testWebhook',
    ...{ lenient, ofAll },
    summary: 'Send an example to a destination',
    description: 'Of the first type that it takes, with `data: {"test": true}`. No other destination gets it.',
    answers: { 200: { description: 'It is on its way', body: wire.webhookTest } },
    errors: ['conflict'],
    answer: async ({ orgId, params, deps }) => ({ ok: true, ...(await deps.webhooks.test(orgId, params.webhookId)) }),
  }),
  route('GET', `${path}/deliveries`, {
    id: 'listWebhookDeliveries',
    ...{ lenient, ofAll },
    summary: 'List what was sent to a destination',
    answers: { 200: { description: 'The attempts', body: wire.deliveryList } },
    answer: async ({ orgId, params, deps }) => ({
      data: (await deps.webhooks.listDeliveries(orgId, params.webhookId)).map(deliveryBody),
    }),
  }),
  route('GET', `${path}/deliveries/:deliveryId`, {
    id: 'getWebhookDelivery',
    ...{ lenient, ofAll },
    summary: 'Read a message that was sent',
    answers: { 200: { description: 'The message', body: wire.deliveredMessage } },
    async answer({ orgId, params, deps }) {
      const message = await deps.webhooks.delivery(orgId, params.webhookId, params.deliveryId)
      const { id, eventType, eventId, state, body, createdAt } = message
      const payload: unknown = body === '' ? null : JSON.parse(body)
      return { id, eventType, eventId, state, payload, timestamp: milliseconds(createdAt) }
    },
  }),
  route('POST', `${path}/deliveries/:deliveryId/redeliver`, {
    id: 'redeliverWebhook',
    ...{ lenient, ofAll },
    summary: 'Send a message again, under the same id',
    answers: { 200: { description: 'It is on its way', body: wire.redelivered } },
    errors: ['conflict'],
    async answer({ orgId, params, deps }) {
      await deps.webhooks.redeliver(orgId, params.webhookId, params.deliveryId)
      return { ok: true }
    },
  }),
]

function webhookBody(destination: Destination): z.output<typeof wire.webhook> {
  const { id, name, url, eventTypes, sandboxId, isEnabled, payload, disabledReason, failingSince } = destination
  return {
    ...{ id, name: name ?? null, url, eventTypes, sandboxId: sandboxId ?? null, enabled: isEnabled, hasSecret: true },
    ...{ payload, disabledReason: disabledReason ?? null, droppedCount: destination.dropped },
    failingSince: failingSince === undefined ? null : milliseconds(failingSince),
    createdAt: milliseconds(destination.createdAt),
    updatedAt: milliseconds(destination.updatedAt),
  }
}

function deliveryBody({ message, attempt }: Delivery) {
  const { id, eventType, nextAttemptAt } = message
  const told = { id, eventType, ...(nextAttemptAt === undefined ? {} : { nextAttemptAt: milliseconds(nextAttemptAt) }) }
  if (attempt === undefined) {
    const status = message.state === 'dropped' ? 'failed' : 'pending'
    return { ...told, attemptId: id, status, timestamp: milliseconds(message.createdAt) }
  }
  const { state: status, durationMs, responseStatusCode, error, startedAt } = attempt
  return {
    ...{ ...told, attemptId: String(attempt.id), status, durationMs, timestamp: milliseconds(startedAt) },
    ...defined({ responseStatusCode, error }),
  }
}
