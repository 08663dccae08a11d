/**
 * What the log of an organisation says: the closed list of types, each with its data, and the envelope. `docs/use/events.md` says when each is
 * written.
 */
import { z } from 'zod'
import { milliTime } from './http/common.ts'
import { at, ids } from './http/examples.ts'

const text = (description: string) => z.string().describe(description)
const reason = text('Why, for programs: that of the sandbox').optional()
const message = text('Why, for people').optional()
const none = z.object({})

const checkpoint = {
  checkpointId: text('Id of the checkpoint'),
  name: text('Name of the checkpoint'),
  kind: text('`full` or `disk_only`'),
}
const image = { name: text('Name of the image').optional(), contentHash: text('Hash of its content') }
const volume = { name: text('Name of the volume'), sizeMB: z.int().describe('What it may hold, in MiB') }
const snapshot = { ...volume, name: text('Name of the snapshot'), volumeId: text('Id of its volume') }
const attachment = {
  path: text('Where the sandbox has it'),
  readOnly: z.boolean().describe('Whether it cannot write to it'),
}
const sizes = {
  cpuCount: z.number().describe('CPUs that it has now'),
  memoryMB: z.int().describe('MiB of memory that it has now'),
}

const budget = {
  usedUsd: z.number().describe('USD that the month has cost so far'),
  budgetUsd: z.number().describe('USD that it may cost'),
}

/** By type, the data of its events. */
export const logEventData = {
  'sandbox.created': z.object({ template: text('The image that it was made from') }),
  'sandbox.ready': none,
  'sandbox.hibernated': z.object({ reason, message }),
  'sandbox.resumed': z.object({ reason, message }),
  'sandbox.stopped': z.object({ reason: z.enum(['user_requested', 'expired', 'idle', 'crash']) }),
  'sandbox.failed': z.object({ reason, message }),
  'sandbox.migrated': none,
  'sandbox.forked': z.object({ parentId: text('The sandbox that its checkpoint was made of').optional() }),
  'sandbox.scaled': z.object(sizes),
  'sandbox.autoscaled': z.object(sizes),
  'sandbox.preview_url.changed': z.object({
    port: z.int().describe('The port of the preview'),
    url: z.string().nullable().describe('Where it is; null once it is deleted'),
  }),
  'sandbox.egress.denied': z.object({
    host: text('The name that was asked for').optional(),
    address: text('The address that was asked for').optional(),
    port: z.int().describe('The port'),
    protocol: text('`tls`, `http`, `https`, `h2`, `ws`, `tcp` or `dns`'),
    method: text('The method of the request').optional(),
    path: text('Its path, without the query').optional(),
    rule: text('The rule that refused, such as `creation.deny[0]`').optional(),
    reason,
  }),
  'sandbox.checkpoint.created': z.object(checkpoint),
  'checkpoint.failed': z.object({ ...checkpoint, message }),
  'checkpoint.deleted': z.object({ ...checkpoint, reason: z.literal('expired').optional() }),
  'image.created': z.object(image),
  'image.ready': z.object(image),
  'image.failed': z.object({ ...image, message }),
  'image.published': z.object(image),
  'image.unpublished': z.object(image),
  'image.deleted': z.object(image),
  'volume.created': z.object(volume),
  'volume.attached': z.object(attachment),
  'volume.detached': z.object(attachment),
  'volume.deleted': z.object(volume),
  'volume.snapshot.created': z.object(snapshot),
  'volume.snapshot.deleted': z.object(snapshot),
  'session.created': none,
  'session.starting': none,
  'session.working': none,
  'session.idle': none,
  'session.paused': none,
  'session.failed': none,
  'session.ended': none,
  'session.deleted': none,
  'usage.budget_warning': z.object(budget),
  'usage.budget_exceeded': z.object(budget),
  'audit.head': z.object({ number: z.int().describe('The newest entry'), hash: text('Its hash') }),
  'webhook.disabled': z.object({ reason: text('Why') }),
  'webhook.dropped': z.object({ count: z.int().describe('Messages that were not sent') }),
  'key.created': none,
  'key.deleted': none,
  'organisation.suspended': z.object({ message }),
  'organisation.resumed': none,
} as const satisfies Record<string, z.ZodObject>

export type LogEventType = keyof typeof logEventData
export type LogEventData<Type extends LogEventType> = z.output<(typeof logEventData)[Type]>

export const logEventTypes = Object.keys(logEventData) as [LogEventType, ...LogEventType[]]

/** Who has asked for the change. `server`: the server itself. */
export const logActor = z
  .object({
    type: z
      .enum(['key', 'token', 'agent', 'sandbox', 'operator', 'server'])
      .describe(
        'A key, a token of a session, the agent of a session, a sandbox through the metadata service, the operator, or the server by itself',
      ),
    id: z.string().optional().describe('Of the key, the session or the sandbox'),
  })
  .meta({ id: 'EventActor' })

/** Causes of a change. */
export const logCauses = [
  'request',
  'signed_url',
  'preview',
  'inside',
  'agent',
  'idle_timeout',
  'max_age',
  'exit',
  'autoscale',
  'retention',
  'recovery',
  'start',
  'operator',
  'server',
] as const

export const logEvent = z
  .object({
    number: z.int().positive().describe('Its place in the log of the organisation, without gaps'),
    id: text('Unique name of the event'),
    ts: milliTime.describe('When it was written'),
    orgId: text('The organisation'),
    type: z.enum(logEventTypes).describe('What has happened'),
    sandboxId: text('The sandbox that it is about').optional(),
    sessionId: text('The session that it is about').optional(),
    subject: text('Id of what has changed'),
    actor: logActor.describe('Who has asked for it'),
    cause: z.enum(logCauses).describe('What has led to it'),
    data: z.looseObject({}).describe('Facts by type, see docs/use/events.md'),
  })
  .meta({
    id: 'Event',
    description: 'A change of state',
    examples: [
      {
        number: 1,
        id: `${ids.sandbox}:sandbox.created`,
        ts: at.millisecond,
        orgId: ids.org,
        type: 'sandbox.created',
        sandboxId: ids.sandbox,
        subject: ids.sandbox,
        actor: { type: 'key' },
        cause: 'request',
        data: { template: 'base' },
      },
    ],
  })

export type LogActor = z.output<typeof logActor>
export type LogCause = (typeof logCauses)[number]
