import type { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { egress as wire } from '../../protocol/http/index.ts'
import {
  type Egress,
  type EgressInput,
  type EgressLayer,
  type EgressLog,
  type EgressPolicy,
  type LoggedEntry,
  type Refreshed,
  takeEgress,
} from '../../sandbox/index.ts'
import type { HttpDeps } from '../server/config.ts'
import { streamEvents } from '../server/event-stream.ts'
import { type Encoding, heartbeat } from '../server/event-writer.ts'
import { type Answer, routesOf } from '../server/route.ts'
import { logStreamCaps } from '../server/streams.ts'
import { milliseconds } from '../server/time.ts'

const route = routesOf('Egress', 'sandbox')
const path = '/api/sandboxes/:id/egress'
const limitDefault = 100
const builtIn = ['gateway.atoll.internal:4180', '169.254.169.254:80']

export const egressRoutes = [
  route('GET', path, {
    id: 'getEgress',
    summary: 'What a sandbox may reach, and which secrets it uses',
    description: 'As it holds now. It never wakes the sandbox.',
    answers: { 200: { description: 'All layers', body: wire.egress } },
    errors: ['unavailable'],
    answer: async ({ orgId, params, deps }) => await egressBody(deps, orgId, params.id),
  }),
  route('PUT', path, {
    id: 'setEgress',
    summary: 'Replace what a sandbox may reach',
    description:
      'In force when it answers, for open connections too. What the organisation, the image and the secret stores say holds besides.',
    body: wire.egressPolicy,
    answers: { 200: { description: 'All layers', body: wire.egress } },
    errors: ['unavailable', 'sandbox_stopped'],
    async answer({ orgId, params, body, deps }) {
      const sandbox = await deps.sandboxes.get(orgId, params.id)
      await held(deps).setPolicy(sandbox, body)
      return await egressBody(deps, orgId, params.id)
    },
  }),
  route('GET', `${path}/log`, {
    id: 'getEgressLog',
    summary: 'What a sandbox has asked for outside',
    description:
      'The oldest that are kept first, or those after `after`. With `follow=true` as server-sent events: `id` is the number, `data` one ' +
      '[`EgressEntry`](#/components/schemas/EgressEntry); `Last-Event-ID` wins over `after`.',
    auth: 'key_or_query',
    query: wire.egressLogQuery,
    answers: { 200: { description: 'A page, or the stream', body: wire.egressLog } },
    errors: ['unavailable'],
    async handle(call) {
      const { orgId, params, query, deps, request } = call
      const sandbox = await deps.sandboxes.get(orgId, params.id)
      const log = logOf(deps)
      const given = request.headers['last-event-id'] ?? query.after ?? '0'
      const limit = query.limit ?? limitDefault
      const filter = defined({ decision: query.decision })
      await log.flush()
      if (query.follow !== 'true') {
        const from = given === 'newest' ? { newest: true } : { after: Number(given) }
        const entries = await log.read(sandbox.id, { ...from, limit, ...filter })
        return { statusCode: 200, body: { data: entries.map(entryBody) } } satisfies Answer
      }
      const after =
        given === 'newest'
          ? ((await log.read(sandbox.id, { newest: true, limit: 1 })).at(-1)?.number ?? 0)
          : Number(given)
      if (!Number.isSafeInteger(after))
        throw new ServiceError('invalid_request', 'Last-Event-ID must be a number', {
          details: { field: 'Last-Event-ID' },
        })
      return await streamEvents(call, { caps: logStreamCaps(call), about: { sandboxId: sandbox.id } }, (gone, send) =>
        send(follow(log, sandbox.id, { after, ...filter }, gone), encoding),
      )
    },
  }),
  route('GET', '/api/sandboxes/:id/allowed-hosts', {
    id: 'getAllowedHosts',
    lenient: true,
    summary: 'Hosts that the secret stores of a sandbox name',
    description: 'Read from the stores as they are now. It never wakes the sandbox.',
    answers: { 200: { description: 'The hosts', body: wire.allowedHosts } },
    errors: ['unavailable'],
    async answer({ orgId, params, deps }) {
      const sandbox = await deps.sandboxes.get(orgId, params.id)
      return { sandboxID: sandbox.id, ...(await held(deps).allowedHosts(sandbox)) }
    },
  }),
  route('GET', '/api/images/:name/egress', {
    id: 'getImageEgress',
    scope: 'image',
    summary: 'What sandboxes from an image are held to',
    answers: { 200: { description: 'The policy', body: wire.imageEgress } },
    errors: ['unavailable'],
    async answer({ orgId, params, deps }) {
      const checkpointId = await deps.images.checkpointOf(orgId, params.name)
      return { policy: shown(await held(deps).imagePolicy(checkpointId)) }
    },
  }),
  route('PUT', '/api/images/:name/egress', {
    id: 'setImageEgress',
    scope: 'image',
    summary: 'Hold sandboxes that start from an image to a policy, whatever their creation says',
    description: 'For those that start from now on, and their forks; images with the same content share it.',
    body: wire.putOrganisationEgress,
    answers: { 200: { description: 'The policy', body: wire.imageEgress } },
    errors: ['unavailable'],
    async answer({ orgId, params, body, deps }) {
      const checkpointId = await deps.images.checkpointOf(orgId, params.name)
      await held(deps).setImagePolicy(checkpointId, body.policy ?? undefined)
      return { policy: shown(await held(deps).imagePolicy(checkpointId)) }
    },
  }),
  route('GET', '/api/egress', {
    id: 'getOrganisationEgress',
    ...{ scope: 'egress', ofAll: true },
    summary: 'What every sandbox of the organisation is held to',
    answers: { 200: { description: 'The policy', body: wire.organisationEgress } },
    errors: ['unavailable'],
    answer: async ({ orgId, deps }) => ({ policy: shown(await held(deps).organisationPolicy(orgId)) }),
  }),
  route('PUT', '/api/egress', {
    id: 'setOrganisationEgress',
    ...{ scope: 'egress', ofAll: true },
    summary: 'Hold every sandbox of the organisation to a policy, whatever its creation says',
    description: 'In force when it answers, for sandboxes that run and for their open connections too.',
    body: wire.putOrganisationEgress,
    answers: { 200: { description: 'The policy, and where it holds', body: wire.organisationEgressSet } },
    errors: ['unavailable'],
    async answer({ orgId, body, deps }) {
      const egress = held(deps)
      const done: Refreshed = await egress.setOrganisationPolicy(orgId, body.policy ?? undefined)
      return { policy: shown(await egress.organisationPolicy(orgId)), ...done }
    },
  }),
]

/** What a create says of egress and secrets. */
export function egressInputOf(body: z.output<z.ZodObject<typeof wire.egressFields>>): EgressInput {
  return takeEgress(body).given
}

async function* follow(
  log: EgressLog,
  sandboxId: string,
  query: { after: number; decision?: LoggedEntry['entry']['decision'] },
  gone: AbortSignal,
): AsyncGenerator<LoggedEntry[]> {
  let { after } = query
  let news = Promise.withResolvers<void>()
  const wake = () => news.resolve()
  const stop = log.onNews(sandboxId, wake)
  gone.addEventListener('abort', wake)
  try {
    while (!gone.aborted) {
      news = Promise.withResolvers<void>()
      const entries = await log.read(sandboxId, { ...query, after, limit: limitDefault })
      const last = entries.at(-1)
      if (last === undefined) await news.promise
      else {
        after = last.number
        yield entries
      }
    }
  } finally {
    stop()
    gone.removeEventListener('abort', wake)
  }
}

const encoding: Encoding<LoggedEntry[]> = {
  encode: (entries) =>
    Buffer.from(entries.map((entry) => `id: ${entry.number}\ndata: ${JSON.stringify(entryBody(entry))}\n\n`).join('')),
  heartbeat: () => heartbeat,
}

function held(deps: HttpDeps): Egress {
  const { egress } = deps.sandboxes
  if (egress === undefined) throw new ServiceError('unavailable', 'this server cannot hold the egress of sandboxes')
  return egress
}

function logOf(deps: HttpDeps): EgressLog {
  const { egressLog } = deps.sandboxes
  if (egressLog === undefined) throw new ServiceError('unavailable', 'this server cannot hold the egress of sandboxes')
  return egressLog
}

async function egressBody(deps: HttpDeps, orgId: string, sandboxId: string): Promise<z.input<typeof wire.egress>> {
  const { state, policy, layers, stores, secrets, unavailable } = await held(deps).report(
    await deps.sandboxes.get(orgId, sandboxId),
  )
  const shownLayers = layers.map(({ log_only: logOnly, ...layer }: EgressLayer) => ({ ...layer, logOnly }))
  return { state, policy: shown(policy), layers: shownLayers, stores, secrets, builtIn, ...defined({ unavailable }) }
}

function shown(policy: EgressPolicy | undefined): EgressPolicy | null {
  return policy ?? null
}

function entryBody({ number, entry }: LoggedEntry): z.input<typeof wire.egressEntry> {
  const { sandbox: _sandbox, time, sent: sentBytes, received: receivedBytes, ms: durationMs, ...rest } = entry
  return { number, ts: milliseconds(new Date(time)), ...rest, sentBytes, receivedBytes, durationMs }
}
