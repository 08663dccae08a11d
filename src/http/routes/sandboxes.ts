import { z } from 'zod'
import { common, sandboxes as wire } from '../../protocol/http/index.ts'
import { assertInput, maxAgeSecondsOf, type Sandbox, type StartedSandbox } from '../../sandbox/index.ts'
import type { BuildOptions, ImageRequest } from '../../image/index.ts'
import { goneSignal, streamBuild, wantsStream } from '../server/build-stream.ts'
import { assertScope } from '../server/scopes.ts'
import type { HttpConfig, HttpDeps } from '../server/config.ts'
import {
  nextPageHeader,
  pageAnswer,
  routesOf,
  wakingErrors,
  type Answer,
  type Call,
  type Route,
} from '../server/route.ts'
import { seconds } from '../server/time.ts'
import { defined } from '../../lib/defined.ts'
import { egressInputOf } from './egress.ts'
import { mountedBody } from './volumes.ts'

const route = routesOf('Sandboxes', 'sandbox')
type CreateBody = z.output<typeof wire.createSandbox>

const errors = ['not_found', 'conflict', 'sandbox_stopped', 'no_capacity', 'unavailable'] as const

export const sandboxRoutes = [
  route('POST', '/api/sandboxes', {
    id: 'createSandbox',
    naming: 'made',
    lenient: true,
    summary: 'Start a sandbox from an image',
    description:
      'From an installed image or one of your own by its name (`templateID` or `snapshot`), or from one that is built first (`image`). ' +
      'An unknown image or user is refused with those that there are. With ' +
      '`image` or `snapshot` and `Accept: text/event-stream` it answers with the events of the build, see `POST /api/snapshots`.',
    body: wire.createSandbox,
    bodyLimit: 'manifestBytesMax',
    creates: true,
    reserve: ({ orgId, body, deps }) =>
      sourceOf(body) === undefined
        ? deps.sandboxes.reserve(orgId, { ...inputOf(body), image: body.templateID })
        : undefined,
    answers: { 201: { description: 'The sandbox runs', body: wire.startResult } },
    errors: [
      'not_found',
      'conflict',
      'quota_exceeded',
      'build_failed',
      'patch_failed',
      'not_implemented',
      'no_capacity',
      'unavailable',
    ],
    async handle(call) {
      const { orgId, body, creation, deps } = call
      const input = inputOf(body)
      const source = sourceOf(body)
      await assertInline(call)
      const told = async (started: StartedSandbox) => await startedWithWebhooks(call, started)
      if (source !== undefined) {
        // A build is an image of the organisation.
        if ('image' in source) assertScope(call.request.caller, 'image')
        const start = async (options: BuildOptions) =>
          await told(await deps.images.startSandbox(orgId, source, input, options))
        if (wantsStream(call)) return await streamBuild(call, start)
        return { statusCode: 201, body: await start({ signal: goneSignal(call), creation }) }
      }
      const started = await deps.images.startNamed(orgId, body.templateID, input, {
        signal: goneSignal(call),
        creation,
      })
      return { statusCode: 201, body: await told(started) }
    },
  }),
  route('GET', '/api/sandboxes', {
    id: 'listSandboxes',
    summary: 'List sandboxes, newest first',
    description: 'Those not stopped, unless `status` says which. The next page is named by the header `X-Next-Cursor`.',
    query: wire.listSandboxesQuery,
    answers: {
      200: {
        description: 'One page',
        body: z.array(wire.sandbox),
        headers: nextPageHeader,
      },
    },
    async handle({ orgId, query, deps, request }) {
      const { status, name, limit = 1000, cursor } = query
      const page = await deps.sandboxes.list(orgId, {
        limit,
        ...defined({ status, name, cursor, reach: request.caller?.reach }),
        ...filtersOf(query),
      })
      return pageAnswer(page, (item) => sandboxBody(item, deps))
    },
  }),
  route('GET', '/api/sandboxes/:id', {
    id: 'getSandbox',
    lenient: true,
    summary: 'Read a sandbox',
    description: 'A stopped one can be read for 24 hours.',
    answers: { 200: { description: 'The sandbox', body: wire.sandbox } },
    answer: async ({ orgId, params, deps }) => sandboxBody(await deps.sandboxes.get(orgId, params.id), deps),
  }),
  route('DELETE', '/api/sandboxes/:id', {
    id: 'deleteSandbox',
    lenient: true,
    summary: 'Stop a sandbox for good',
    description: 'Repeating it is harmless. Its checkpoints stay.',
    query: wire.deleteSandboxQuery,
    answers: { 204: { description: 'It is stopped' } },
    async answer({ orgId, params, query, deps, request }) {
      const withStore = isYes(query.deleteSecretStore)
      if (withStore) assertScope(request.caller, 'secret')
      const store = withStore ? await secretStoreOf(deps, orgId, params.id) : undefined
      await deps.sandboxes.delete(orgId, params.id)
      if (store === undefined) return
      await deps.secrets.remove(orgId, store.id).catch((error: unknown) => {
        deps.log.warn({ err: error, sandboxId: params.id }, 'the secret store of a deleted sandbox is left')
      })
    },
  }),
  route('POST', '/api/sandboxes/:id/hibernate', {
    id: 'hibernateSandbox',
    lenient: true,
    summary: 'Hibernate a sandbox: it keeps its state and uses no CPU or memory',
    answers: { 200: { description: 'It is hibernated', body: wire.hibernated } },
    errors: ['conflict', 'sandbox_stopped', 'unavailable'],
    async handle({ orgId, params, deps }) {
      const { sizeBytes } = await deps.sandboxes.hibernate(orgId, params.id)
      return { statusCode: 200, body: { sandboxID: params.id, status: 'hibernated', sizeBytes } }
    },
  }),
  route('POST', '/api/sandboxes/:id/wake', {
    id: 'wakeSandbox',
    lenient: true,
    summary: 'Wake a hibernated sandbox',
    description: 'Without `timeout` it keeps its own. A sandbox that runs is left as it is.',
    body: wire.wakeBody,
    answers: { 200: { description: 'It runs', body: wire.startResult } },
    errors: [...wakingErrors, 'quota_exceeded'],
    async handle({ orgId, params, body, deps }) {
      const { timeout: timeoutSeconds, memory } = body
      const sandbox = await deps.sandboxes.wake(orgId, params.id, defined({ timeoutSeconds, memory }))
      return { statusCode: 200, body: startResult({ sandbox }, deps.config) }
    },
  }),
  route('PATCH', '/api/sandboxes/:id', {
    id: 'updateSandbox',
    naming: 'kept',
    summary: 'Change the name of a sandbox, and what ends it',
    description:
      'What is left out stays. `timeout` and `onIdle` restart the idle clock. A `maxAgeSeconds` that is over already is refused.',
    body: wire.updateSandbox,
    answers: { 200: { description: 'The sandbox', body: wire.sandbox } },
    errors: ['conflict', 'sandbox_stopped'],
    async handle({ orgId, params, body, deps }) {
      const { name, timeout: timeoutSeconds, onIdle, maxAgeSeconds } = body
      const renamed = name === undefined ? {} : { name: name ?? undefined }
      const change = { ...renamed, ...defined({ timeoutSeconds, onIdle, maxAgeSeconds }) }
      return { statusCode: 200, body: sandboxBody(await deps.sandboxes.update(orgId, params.id, change), deps) }
    },
  }),
  startAgain('rebootSandbox', 'reboot', 'End all processes and start a sandbox again on its disk', 'reboot'),
  startAgain('powerCycleSandbox', 'power-cycle', 'Reboot without a signal to its processes', 'powerCycle'),
  route('POST', '/api/sandboxes/:id/timeout', {
    id: 'setSandboxTimeout',
    lenient: true,
    summary: 'Set the idle timeout of a sandbox',
    description: 'Whole seconds; replaces the current value and restarts its clock. 0 means never.',
    body: wire.setTimeoutBody,
    answers: { 200: { description: 'Set', body: common.empty } },
    errors: ['conflict', 'sandbox_stopped'],
    answer: ({ orgId, params, body, deps }) => deps.sandboxes.setTimeout(orgId, params.id, body.timeout),
  }),
  route('GET', '/api/sandboxes/:id/tags', {
    id: 'getSandboxTags',
    lenient: true,
    tag: 'Tags',
    summary: 'Read the tags of a sandbox',
    answers: { 200: { description: 'Its tags', body: wire.tags } },
    async handle({ orgId, params, deps }) {
      return tagsAnswer(await deps.sandboxes.get(orgId, params.id))
    },
  }),
  route('PUT', '/api/sandboxes/:id/tags', {
    id: 'setSandboxTags',
    lenient: true,
    tag: 'Tags',
    summary: 'Replace the tags of a sandbox',
    description:
      'The body is the bare map: at most 50 keys of 1 to 128 characters `A–Z a–z 0–9 _ . - :`, values up to 256.',
    body: wire.putTags,
    answers: { 200: { description: 'Its tags', body: wire.tags } },
    errors: ['sandbox_stopped'],
    async handle({ orgId, params, body, deps }) {
      return tagsAnswer(await deps.sandboxes.setTags(orgId, params.id, body))
    },
  }),
  route('GET', '/api/tags', {
    id: 'listTagKeys',
    lenient: true,
    tag: 'Tags',
    summary: 'List the tag keys in use',
    answers: { 200: { description: 'Keys of all sandboxes that are not stopped', body: wire.tagKeys } },
    answer: async ({ orgId, deps, request }) => ({
      keys: await deps.sandboxes.tagKeys(orgId, request.caller?.reach),
    }),
  }),
]

/** Throws `invalid_request` for two values of one key, which no sandbox has. */
function filtersOf({ metadata = [], tag = [] }: z.output<typeof wire.listSandboxesQuery>) {
  const pairs = tag.filter((text) => text.includes('='))
  const tagKeys = tag.filter((text) => !text.includes('='))
  return {
    ...(metadata.length === 0 ? {} : { metadata: pairsOf(metadata, 'metadata') }),
    ...(pairs.length === 0 ? {} : { tags: pairsOf(pairs, 'tag') }),
    ...(tagKeys.length === 0 ? {} : { tagKeys }),
  }
}

function pairsOf(texts: readonly string[], field: string): Record<string, string> {
  const pairs = new Map<string, string>()
  for (const text of texts) {
    const at = text.indexOf('=')
    const [key, value] = [text.slice(0, at), text.slice(at + 1)]
    assertInput((pairs.get(key) ?? value) === value, field, `has two values for ${JSON.stringify(key.slice(0, 140))}`)
    pairs.set(key, value)
  }
  return Object.fromEntries(pairs)
}

/** What the client wants to start from: a snapshot, else a manifest. Undefined for neither. */
export function sourceOf(body: Pick<CreateBody, 'image' | 'snapshot'>): ImageRequest | undefined {
  const { image, snapshot } = body
  if (snapshot) return { snapshot }
  return image ? { image } : undefined
}

function inputOf(body: CreateBody) {
  const { name, onIdle, maxAgeSeconds, cpuCount, envs, metadata, volumes, user } = body
  const { timeout: timeoutSeconds, memoryMB: memoryMb, diskMB: diskMb } = body
  const previewAuth = body.previewAuth && previewAuthOf(body.previewAuth)
  const lifetimes = { timeoutSeconds, onIdle, maxAgeSeconds }
  return {
    ...defined({ name, ...lifetimes, cpuCount, memoryMb, diskMb, envs, metadata, volumes, user, previewAuth }),
    ...egressInputOf(body),
  }
}

/** As OpenComputer's SDK and its server write it. */
function isYes(text: string | undefined): boolean {
  return ['1', 'true', 'yes', 'y', 'on'].includes(text?.toLowerCase() ?? '')
}

/** The store that the sandbox named itself. */
async function secretStoreOf(deps: HttpDeps, orgId: string, sandboxId: string) {
  const hosts = await deps.sandboxes.egress?.allowedHosts(await deps.sandboxes.get(orgId, sandboxId))
  return (await deps.secrets.list(orgId)).find(({ name }) => name === hosts?.secretStore)
}

type InlineCall = Pick<Call, 'orgId' | 'request' | 'deps' | 'creation'> & { body: Pick<CreateBody, 'webhooks'> }

/** Before anything starts. */
export async function assertInline({
  orgId,
  body: { webhooks = [] },
  request,
  creation,
  deps,
}: InlineCall): Promise<void> {
  if (webhooks.length === 0) return
  assertScope(request.caller, 'webhook')
  await deps.webhooks.assertInline(orgId, webhooks.map(defined), { creation })
}

/** A start with the destinations that came with its request. */
export async function startedWithWebhooks(
  { orgId, body: { webhooks = [] }, creation, deps }: InlineCall,
  started: StartedSandbox,
): Promise<z.output<typeof wire.startResult>> {
  const result = startResult(started, deps.config)
  if (webhooks.length === 0) return result
  const registered = await deps.webhooks.addInline(orgId, started.sandbox.id, webhooks.map(defined), creation)
  return { ...result, webhooks: registered }
}

/** The parts that every answer about a sandbox has. */
function startFields(
  sandbox: Sandbox,
  config: HttpConfig,
): Omit<z.output<typeof wire.startResult>, 'previewAuthToken' | 'fromCheckpointId' | 'webhooks'> {
  return {
    sandboxID: sandbox.id,
    ...defined({ name: sandbox.name }),
    status: sandbox.status,
    region: config.region,
    workerID: config.workerId,
    sandboxDomain: new URL(config.previewUrl).host,
    memoryMB: sandbox.memoryMb,
    cpuCount: sandbox.cpuCount,
  }
}

export function startResult(started: StartedSandbox, config: HttpConfig): z.output<typeof wire.startResult> {
  return {
    ...startFields(started.sandbox, config),
    ...defined({ previewAuthToken: started.previewAuthToken, fromCheckpointId: started.sandbox.fromCheckpointId }),
  }
}

function sandboxBody(sandbox: Sandbox, { config, sandboxes }: HttpDeps): z.output<typeof wire.sandbox> {
  const { image: templateID, timeoutSeconds: timeout, metadata, tags, reason, reasonMessage } = sandbox
  return {
    ...startFields(sandbox, config),
    ...{ templateID, timeout, metadata, tags },
    ...{ onIdle: sandbox.onIdle, maxAgeSeconds: maxAgeSecondsOf(sandbox) },
    tagsLastUpdatedAt: seconds(sandbox.tagsUpdatedAt),
    startedAt: seconds(sandbox.startedAt),
    endAt: seconds(sandboxes.endAt(sandbox)),
    expiresAt: seconds(sandbox.status === 'stopped' ? undefined : sandbox.expiresAt),
    volumes: mountedBody(sandbox.volumes),
    ...defined({ user: sandbox.commandDefaults?.user, reason, reasonMessage }),
  }
}

export function previewAuthOf(auth: { token?: string | undefined }): { scheme: 'bearer'; token?: string } {
  return { scheme: 'bearer', ...(auth.token === undefined ? {} : { token: auth.token }) }
}

function startAgain(id: string, button: string, summary: string, operation: 'reboot' | 'powerCycle'): Route {
  return route('POST', `/api/sandboxes/:id/${button}`, {
    id,
    lenient: true,
    summary,
    answers: { 200: { description: 'It runs again', body: common.empty } },
    errors,
    answer: ({ orgId, params, deps }) => deps.sandboxes[operation](orgId, params.id),
  })
}

function tagsAnswer(sandbox: Sandbox): Answer {
  return { statusCode: 200, body: { tags: sandbox.tags, tagsLastUpdatedAt: seconds(sandbox.tagsUpdatedAt) } }
}
