/** The operations of `openapi.json` as the reference shows them, and what each needs to be there, made through the API. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after } from 'node:test'
import { Ajv2020 } from 'ajv/dist/2020.js'
import type { HostReport } from '../../src/http/server/server.ts'
import { openApiDocument, type Json, type SchemaObject } from '../../src/http/server/openapi.ts'
import { routes } from '../../src/http/routes/index.ts'
import { ids } from '../../src/protocol/http/examples.ts'
import { ApiClient } from '../support/api-client.ts'
import { makeOrganisation } from '../support/sandbox-service.ts'
import { operatorKey, useWorld } from '../support/world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const report: HostReport = {
  ...{ kernel: '6.1', runtime: 'fake', startedAt: new Date(), checkedAt: new Date(), checks: [] },
  capacity: {
    ...{ cpuCount: 1, memoryBytes: 1, memoryAvailableBytes: 1, diskBytes: 1, diskAvailableBytes: 1 },
    ...{ runningSandboxes: 0, warmSandboxes: 0 },
  },
}
const docs = { 'index.html': '<p>', '404.html': '<p>', 'use/api.html': '<p>' }
export const world = useWorld({
  host: async () => report,
  publicUrl: 'http://api.example.com',
  edge: { port: 9 },
  docs,
})

/** A server of the sandboxes. */
export const listener = createServer((_request, response) => void response.end('hello\n'))
listener.listen(0, '127.0.0.1')
await once(listener, 'listening')
after(() => {
  listener.closeAllConnections()
  listener.close()
})

export const document = openApiDocument(routes)
export const ajv = new Ajv2020({ strict: false })
ajv.addSchema(document, 'openapi')

export function resolved(part: SchemaObject): SchemaObject {
  const { $ref } = part
  if (typeof $ref !== 'string') return part
  return $ref
    .split('/')
    .slice(1)
    .reduce((value: SchemaObject, key) => value[key] as SchemaObject, document)
}

/** What is shown for a schema: its own example, or one of its parts. Undefined where something has none. */
export function exampleOf(schema: SchemaObject): Json | undefined {
  const { examples, type, items, properties, required = [], anyOf, const: only } = resolved(schema)
  if (Array.isArray(examples)) return examples[0]
  if (only !== undefined) return only
  if (Array.isArray(anyOf)) return exampleOf(anyOf[0] as SchemaObject)
  if (type === 'array') {
    const item = exampleOf(items as SchemaObject)
    return item === undefined ? undefined : [item]
  }
  if (type !== 'object' || properties === undefined) return undefined
  const parts = (required as string[]).map(
    (name) => [name, exampleOf((properties as SchemaObject)[name] as SchemaObject)] as const,
  )
  return parts.some(([, part]) => part === undefined) ? undefined : (Object.fromEntries(parts) as SchemaObject)
}

export interface Parameter {
  name: string
  in: string
  required?: boolean
  example?: string
  schema: SchemaObject
}

export interface Operation {
  method: string
  path: string
  id: string
  parameters: Parameter[]
  body: Json | undefined
  /** Of the body, by name. */
  fields: Json
  /** By media type, what a success is shown with. */
  answer: Record<string, Json | undefined>
  statuses: number[]
}

interface Described {
  operationId: string
  tags: string[]
  parameters: SchemaObject[]
  requestBody?: { content: Record<string, SchemaObject> }
  responses: Record<string, SchemaObject>
}

export const operations = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, described]): Operation => {
    const { operationId: id, tags, parameters, requestBody, responses } = described as unknown as Described
    const isSuccess = (status: number) =>
      status < 400 || status === 405 || (status === 501 && tags.includes('Not built yet'))
    const shown = Object.entries(responses)
      .map(([status, response]) => ({ status: Number(status), ...resolved(response) }))
      .filter(({ status }) => isSuccess(status))
    const contents = shown.flatMap((response) => Object.entries(('content' in response && response.content) || {}))
    const [media] = Object.values(requestBody?.content ?? {})
    return {
      ...{ method: method.toUpperCase(), path, id },
      parameters: parameters.map((parameter) => resolved(parameter) as unknown as Parameter),
      body: media && (shownIn(media) ?? null),
      fields: (requestBody?.content['application/json']?.['schema'] as SchemaObject | undefined)?.['properties'] ?? {},
      answer: Object.fromEntries(contents.map(([type, part]) => [type, shownIn(part as SchemaObject)])),
      statuses: shown.map(({ status }) => status),
    }
  }),
)

function shownIn({ example, schema }: SchemaObject): Json | undefined {
  return example ?? exampleOf(schema as SchemaObject)
}

export function exampleOfParameter({ example, schema }: Parameter): string | undefined {
  return example ?? (schema as { examples?: string[] }).examples?.[0]
}

/** What operations are about, made through the API. */
export class Made {
  readonly api: ApiClient
  readonly orgId: string
  /** By what stands in the examples, what was made. */
  readonly ids = new Map<string, string>()

  constructor(api: ApiClient, orgId: string) {
    this.api = api
    this.orgId = orgId
  }

  real(text: string): string {
    return [...this.ids].reduce((done, [shown, made]) => done.replaceAll(shown, made), text)
  }

  async post(path: string, body: object = {}) {
    const answer = await this.api.post(this.real(path), body)
    assert.ok(answer.status < 300, `${path} ${answer.text}`)
    return answer.body
  }
}

const emptyArchive = Buffer.alloc(1024)

/** What the reference sends, about what was made. */
export function bodyOf({ id, body }: Operation, made: Made): Buffer | string | undefined {
  if (/^upload\w*Context$/.test(id)) return emptyArchive
  if (typeof body === 'string') return Buffer.from(body)
  return body === undefined ? undefined : made.real(JSON.stringify(body))
}

const sandbox = `/api/sandboxes/${ids.sandbox}`
/** The key of the example. */
const shownKey = 'atoll_3f9a1c7e…'
const readable = { user_id: 'ada', scope: 'read' }

/** For each parameter of a path, how there comes to be what it names. */
const makers: Record<string, (made: Made, operation: Operation) => Promise<void>> = {
  async id(made, { id }) {
    const { sandboxID } = await made.post('/api/sandboxes', id === 'rotatePreviewToken' ? { previewAuth: {} } : {})
    made.ids.set(ids.sandbox, sandboxID).set('/workspace', world.machines.folder(sandboxID))
    made.ids.set(encodeURIComponent('/workspace'), encodeURIComponent(world.machines.folder(sandboxID)))
    if (id === 'getSandboxTags') await made.api.put(made.real(`${sandbox}/tags`), { team: 'web' })
    await made.api.put(made.real(`${sandbox}/files?path=/workspace/hello.txt`), Buffer.from('hello\n'))
    if (id !== 'compareDisks') return
    const checkpoint = await made.post(`${sandbox}/checkpoints`, { name: 'a', kind: 'disk_only' })
    made.ids.set(ids.checkpoint, checkpoint.id)
    world.machines.trees.disks.set(sandboxID, { '/workspace/hello.txt': 'hello\n' })
  },
  async checkpointId(made, operation) {
    if (!made.ids.has(ids.sandbox)) await makers['id']!(made, operation)
    made.ids.set(ids.checkpoint, (await made.post(`${sandbox}/checkpoints`, { name: 'a', kind: 'disk_only' })).id)
  },
  async patchId(made, { path }) {
    const owner = path
      .slice(0, path.indexOf('/patches'))
      .replace('{name}', 'tools')
      .replace('{checkpointId}', ids.checkpoint)
    made.ids.set(ids.patch, (await made.post(`${owner}/patches`, { script: 'true' })).patch.id)
  },
  async execId(made, { id }) {
    if (id === 'getCommandResult') {
      const { execId } = await made.post(`${sandbox}/exec/run-async`, { cmd: 'true' })
      made.ids.set(ids.exec, execId)
      const result = made.real(`${sandbox}/exec/${execId}/result`)
      await eventually(async () => !(await made.api.get(result)).body.running)
      return
    }
    made.ids.set(ids.exec, (await made.post(`${sandbox}/exec`, { cmd: 'cat' })).sessionID)
  },
  async ptyId(made) {
    made.ids.set(ids.terminal, (await made.post(`${sandbox}/pty`, { shell: '/bin/sh' })).sessionID)
  },
  async port(made, { path }) {
    if (path.includes('/ports/')) {
      made.ids.set('/ports/3000', `/ports/${(listener.address() as AddressInfo).port}`)
      return
    }
    await made.post(`${sandbox}/preview`, { port: 3000 })
  },
  async pid(made) {
    const { sessionID } = await made.post(`${sandbox}/exec`, { cmd: 'sh', args: ['-c', 'echo $$; exec cat'] })
    for (;;) {
      const { stdout } = (await made.api.get(made.real(`${sandbox}/exec/${sessionID}/result?wait=1`))).body
      if (stdout === '') continue
      made.ids.set('/42', `/${stdout.trim()}`)
      return
    }
  },
  async sessionId(made, { id }) {
    const session = await made.post('/v1/sessions', { prompt: 'a', user_id: 'ada' })
    made.ids.set(ids.session, session.id).set(ids.message, session.messages[0].id)
    const kept = world.sessions.kept.get(session.id)!
    if (id === 'forkSession') kept.session.activity = 'idle'
    if (id === 'restartSession') kept.session.activity = 'failed'
  },
  async capsuleId(made) {
    made.ids.set(ids.capsule, (await made.post(`/v1/sessions/${ids.session}/capsules`, readable)).id)
  },
  async token(made, operation) {
    await makers['sessionId']!(made, operation)
    const body = { ...readable, scope: 'fork' }
    made.ids.set(ids.capsuleToken, (await made.post(`/v1/sessions/${ids.session}/capsules`, body)).token)
  },
  async storeId(made) {
    const { id } = await made.post('/api/secret-stores', { name: 'production' })
    made.ids.set(ids.secretStore, id)
    await made.api.put(`/api/secret-stores/${id}/secrets/OPENAI_API_KEY`, { value: 'sk-the-value' })
  },
  async name(made, { path, id }) {
    if (path.startsWith('/api/volumes')) await made.post('/api/volumes', { name: 'tools' })
    else if (!id.startsWith('import') && (await made.api.get('/api/images/tools')).status === 404)
      await made.post('/api/snapshots', { name: 'tools', image: { steps: [] } })
  },
  async orgId(made) {
    made.ids.set(ids.org, (await made.post('/api/orgs', { name: 'Team Reef', limits: { runningSandboxesMax: 20 } })).id)
  },
  async keyId(made, { path }) {
    const keys = path.startsWith('/api/orgs') ? `/api/orgs/${ids.org}/keys` : '/api/keys'
    made.ids.set(ids.key, (await made.post(keys)).id)
  },
  async webhookId(made) {
    made.ids.set(ids.webhook, (await made.post('/api/webhooks', { url: 'https://example.com/hook' })).id)
  },
  async deliveryId(made) {
    made.ids.set(ids.delivery, (await made.post(`/api/webhooks/${ids.webhook}/test`)).messageId)
  },
  async contextId(made) {
    made.ids.set(ids.context, (await made.post('/api/images/contexts', contextBody())).id)
  },
  async cache(made) {
    const sandboxId = (await made.post('/api/sandboxes', {})).sandboxID
    const mount = { type: 'cache', key: 'pip', target: '/root/.cache' } as const
    await (await world.sandboxes.mounts.attach(made.orgId, sandboxId, mount)).detach()
    const [found] = await world.sandboxes.caches.list(made.orgId)
    made.ids.set(ids.cache, found!.id)
  },
  async snapshot(made) {
    await made.post('/api/volumes/tools/snapshots', { name: 'monday' })
  },
  async host(made) {
    await made.api.put('/api/registries/ghcr.io', { username: 'robot', password: 'secret' })
  },
}

export async function prepared(operation: Operation): Promise<Made> {
  // Only the operator's own organisation may publish images.
  const isOperators = /publish(?:Image|Snapshot)$/i.test(operation.id)
  const own = isOperators ? { id: world.orgId, key: world.api.key } : await makeOrganisation(world.store)
  const key = /^\/api\/(?:orgs|operator)/.test(operation.path) ? operatorKey : own.key
  const made = new Made(new ApiClient(world.origin, key), own.id)
  made.ids.set(shownKey, own.key)
  if (operation.statuses.includes(501)) return made
  for (const { name, in: where } of operation.parameters) {
    if (where === 'path') await makers[name]?.(made, operation)
  }
  return made
}

function contextBody(): object {
  return operations.find(({ id }) => id === 'createContext')!.body as object
}

/** The path as it is shown. */
export function pathOf({ path, parameters }: Operation): string {
  return parameters
    .filter((parameter) => parameter.in === 'path')
    .reduce((done, parameter) => done.replace(`{${parameter.name}}`, exampleOfParameter(parameter) ?? ''), path)
}

/** The query as it is shown; that of a signed URL is the server's. */
export async function queryOf(made: Made, { id, parameters }: Operation): Promise<string> {
  const signing: Record<string, string> = {
    uploadSignedFile: `${sandbox}/files/upload-url`,
    downloadSignedFile: `${sandbox}/files/download-url`,
    statSignedFile: `${sandbox}/files/download-url`,
    importSignedImage: '/api/images/tools/archive-url',
  }
  if (id === 'uploadSignedContext') {
    return new URL((await made.post('/api/images/contexts', contextBody())).uploadUrl as string).search
  }
  const signed = signing[id]
  if (signed !== undefined) {
    const { url } = await made.post(
      signed,
      id === 'importSignedImage' ? {} : { path: made.real('/workspace/hello.txt') },
    )
    return new URL(url as string).search
  }
  const given = parameters.flatMap((parameter) => {
    const example = parameter.in === 'query' ? exampleOfParameter(parameter) : undefined
    return example === undefined ? [] : [`${parameter.name}=${encodeURIComponent(example)}`]
  })
  return given.length === 0 ? '' : made.real(`?${given.join('&')}`)
}
