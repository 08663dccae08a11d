/**
 * The examples of the reference: each operation of `openapi.json` is sent as it is shown, in an organisation of its own, and the answer is of
 * the shown kind. Ids of the examples stand for what the test has made, and `/workspace` for the folder of the sandbox.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createServer, get } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { after, test } from 'node:test'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { WebSocket } from 'ws'
import type { HostReport } from '../../src/http/server/server.ts'
import { openApiDocument, type Json, type SchemaObject } from '../../src/http/server/openapi.ts'
import { routes } from '../../src/http/routes/index.ts'
import { ids } from '../../src/protocol/http/examples.ts'
import { tarEnd } from '../../src/protocol/tar-writer.ts'
import { ApiClient } from '../support/api-client.ts'
import { makeOrganisation } from '../support/sandbox-service.ts'
import { operatorKey, useWorld } from '../support/world.ts'

const report: HostReport = {
  ...{ kernel: '6.1', runtime: 'fake', startedAt: new Date(), checkedAt: new Date(), checks: [] },
  capacity: {
    ...{ cpuCount: 1, memoryBytes: 1, memoryAvailableBytes: 1, diskBytes: 1, diskAvailableBytes: 1 },
    ...{ runningSandboxes: 0, warmSandboxes: 0 },
  },
}
const world = useWorld({ host: async () => report, publicUrl: 'http://api.example.com', edge: { port: 9 } })

/** A server of the sandboxes. */
const listener = createServer((_request, response) => void response.end('hello\n'))
listener.listen(0, '127.0.0.1')
await once(listener, 'listening')
after(() => {
  listener.closeAllConnections()
  listener.close()
})

const document = openApiDocument(routes)
const ajv = new Ajv2020({ strict: false })
ajv.addSchema(document, 'openapi')

function resolved(part: SchemaObject): SchemaObject {
  const { $ref } = part
  if (typeof $ref !== 'string') return part
  return $ref
    .split('/')
    .slice(1)
    .reduce((value: SchemaObject, key) => value[key] as SchemaObject, document)
}

/** What is shown for a schema: its own example, or one of its parts. Undefined where something has none. */
function exampleOf(schema: SchemaObject): Json | undefined {
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

interface Parameter {
  name: string
  in: string
  required?: boolean
  example?: string
  schema: SchemaObject
}

interface Operation {
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

const operations = Object.entries(document.paths).flatMap(([path, item]) =>
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

test('examples: every operation shows a request and an answer, and they are what its schemas say', () => {
  for (const { id, path, parameters, body, answer, statuses } of operations) {
    assert.notEqual(body, null, `${id} shows no body: give its schema \`examples\`, or the route \`bodyExample\``)
    assert.ok(statuses.length > 0, `${id} shows no answer`)
    for (const [type, example] of Object.entries(answer)) assert.notEqual(example, undefined, `${id} shows no ${type}`)
    const bare = parameters.filter(
      (parameter) => parameter.required === true && exampleOfParameter(parameter) === undefined,
    )
    assert.deepEqual(
      bare.map(({ name }) => name),
      [],
      `${id} ${path}: parameters without an example`,
    )
  }
  for (const place of placesOfExamples(document, [])) {
    const schema = place.reduce((value: SchemaObject, key) => value[key] as SchemaObject, document)
    const pointer = place.map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/')
    const validate = ajv.compile({ $ref: `openapi#/${pointer}` })
    for (const example of schema['examples'] as Json[]) {
      assert.ok(validate(example), `${place.join('/')}: ${ajv.errorsText(validate.errors)}`)
    }
  }
})

function placesOfExamples(value: Json, place: string[]): string[][] {
  if (typeof value !== 'object' || value === null) return []
  const below = Object.entries(value).flatMap(([key, item]) =>
    key === 'examples' ? [] : placesOfExamples(item, [...place, key]),
  )
  return 'examples' in value ? [place, ...below] : below
}

function exampleOfParameter({ example, schema }: Parameter): string | undefined {
  return example ?? (schema as { examples?: string[] }).examples?.[0]
}

/** What operations are about, made through the API. */
class Made {
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
const sandbox = `/api/sandboxes/${ids.sandbox}`

/** For each parameter of a path, how there comes to be what it names. */
const makers: Record<string, (made: Made, operation: Operation) => Promise<void>> = {
  async id(made, { id }) {
    const { sandboxID } = await made.post('/api/sandboxes', id === 'rotatePreviewToken' ? { previewAuth: {} } : {})
    made.ids.set(ids.sandbox, sandboxID).set('/workspace', world.machines.folder(sandboxID))
    made.ids.set(encodeURIComponent('/workspace'), encodeURIComponent(world.machines.folder(sandboxID)))
    if (id === 'getSandboxTags') await made.api.put(made.real(`${sandbox}/tags`), { team: 'web' })
    await made.api.put(made.real(`${sandbox}/files?path=/workspace/hello.txt`), Buffer.from('hello\n'))
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
      made.ids.set(ids.exec, (await made.post(`${sandbox}/exec/run-async`, { cmd: 'true' })).execId)
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

async function prepared(operation: Operation): Promise<Made> {
  // Only the operator's own organisation may publish images.
  const isOperators = /publish(?:Image|Snapshot)$/i.test(operation.id)
  const own = isOperators ? { id: world.orgId, key: world.api.key } : await makeOrganisation(world.store)
  const key = /^\/api\/(?:orgs|operator)/.test(operation.path) ? operatorKey : own.key
  const made = new Made(new ApiClient(world.origin, key), own.id)
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
function pathOf({ path, parameters }: Operation): string {
  return parameters
    .filter((parameter) => parameter.in === 'path')
    .reduce((done, parameter) => done.replace(`{${parameter.name}}`, exampleOfParameter(parameter) ?? ''), path)
}

/** The query as it is shown; that of a signed URL is the server's. */
async function queryOf(made: Made, { id, parameters }: Operation): Promise<string> {
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

async function statusOfStream(made: Made, target: string): Promise<number> {
  return await new Promise((resolve, reject) => {
    const call = get(world.origin + target, { headers: { 'x-api-key': made.api.key } }, (response) => {
      assert.match(response.headers['content-type'] ?? '', /^text\/event-stream/)
      response.on('error', () => undefined)
      resolve(response.statusCode ?? 0)
      call.destroy()
    })
    call.on('error', reject)
  })
}

async function statusOfUpgrade(made: Made, target: string): Promise<number> {
  const socket = new WebSocket(`${world.origin.replace('http', 'ws')}${target}`, {
    headers: { 'x-api-key': made.api.key },
  })
  const opened = Promise.withResolvers<number>()
  socket.on('upgrade', ({ statusCode }) => opened.resolve(statusCode ?? 0))
  socket.on('error', opened.reject)
  const status = await opened.promise
  socket.terminate()
  return status
}

for (const operation of operations) {
  test(`examples: ${operation.id} answers as it is shown`, async () => {
    const made = await prepared(operation)
    // Setup makes it.
    if (operation.id === 'getSdk') await writeFile(world.sdkPackage, 'the package')
    if (operation.id.startsWith('import')) {
      Object.assign(world.machines, {
        assertImportable: () => undefined,
        importImage: async (checkpointId: string, source: { archive: AsyncIterable<unknown> }) => {
          for await (const _ of source.archive);
          world.machines.checkpoints.add(checkpointId)
          return { digest: 'sha256:a', sizeBytes: 5, config: { env: {}, entrypoint: [], cmd: [] } }
        },
      })
    }
    if (operation.id === 'exportImage' || operation.id === 'pushImage') {
      // Here the root of a sandbox is that of this machine.
      Object.assign(world.sandboxes.files, { pack: async () => Readable.from([tarEnd]) })
      Object.assign(world.machines, {
        assertImportable: () => undefined,
        pushImage: async (archive: AsyncIterable<unknown>) => {
          for await (const _ of archive);
          return { digest: 'sha256:a' }
        },
      })
    }
    const target = made.real(pathOf(operation)) + (await queryOf(made, operation))
    const { body, statuses } = operation
    if (statuses.includes(101)) return assert.equal(await statusOfUpgrade(made, target), 101)
    const types = Object.keys(operation.answer)
    if (operation.method === 'GET' && types.length === 1 && types[0] === 'text/event-stream') {
      return assert.equal(await statusOfStream(made, target), 200)
    }
    const sent = /^upload\w*Context$/.test(operation.id)
      ? emptyArchive
      : typeof body === 'string'
        ? Buffer.from(body)
        : body === undefined
          ? undefined
          : made.real(JSON.stringify(body))
    const headers = operation.id === 'callMcp' ? { accept: 'application/json, text/event-stream' } : {}
    // Checks the answer with the schemas.
    const answer = await made.api.send(operation.method, target, { body: sent, headers })
    assert.ok(
      statuses.includes(answer.status),
      `${answer.status} ${answer.text.slice(0, 500)}, shown are ${statuses.join(', ')}`,
    )
    const shown = operation.answer['application/json']
    if (answer.status === statuses[0] && typeof shown === 'object' && answer.body !== undefined) {
      assert.deepEqual(missing(shown, answer.body), [], `not in the answer ${answer.text.slice(0, 500)}`)
    }
  })
}

/** Fields that are shown and were not answered, by their place. Maps and lists may be empty. */
function missing(shown: Json | undefined, answered: unknown, place = ''): string[] {
  if (Array.isArray(shown))
    return Array.isArray(answered)
      ? answered.length === 0
        ? []
        : missing(shown[0], answered[0], `${place}[0]`)
      : [place]
  if (typeof shown !== 'object' || shown === null) return answered === undefined ? [place] : []
  if (answered === null) return []
  if (typeof answered !== 'object') return [place]
  return Object.entries(shown).flatMap(([name, value]) =>
    missing(value, (answered as Record<string, unknown>)[name], `${place}.${name}`),
  )
}

/** Values that the schema of a field does not allow, and those at its bounds. */
function edgesOf({ minimum, maximum, pattern, maxLength }: SchemaObject): { outside: Json[]; inside: Json[] } {
  if (typeof pattern === 'string' || typeof maxLength === 'number') {
    const allowed = new RegExp(typeof pattern === 'string' ? pattern : '')
    const words = ['no such name!', '', ' ', '-', 'x'.repeat(300)].filter((word) => !allowed.test(word))
    const tooLong = typeof maxLength === 'number' ? ['x'.repeat(maxLength + 1)] : []
    return { outside: [...words, ...tooLong], inside: [] }
  }
  const isBounded = (bound: Json | undefined) => typeof bound === 'number' && Math.abs(bound) < Number.MAX_SAFE_INTEGER
  const outside = [
    ...(isBounded(minimum) ? [(minimum as number) - 1] : []),
    ...(isBounded(maximum) ? [(maximum as number) + 1] : []),
  ]
  return { outside, inside: [minimum, maximum].filter((bound) => isBounded(bound)) as Json[] }
}

/** One makes as many sandboxes, the other has another field above it. */
const notAtBounds = new Set(['count', 'minMemoryMB'])

function namesField(body: { error: unknown; field?: unknown }, field: string): boolean {
  const message = typeof body.error === 'string' ? body.error : (body.error as { message: string }).message
  return body.field === field || message.startsWith(field)
}

const bounded = operations.flatMap((operation) => {
  const fields = Object.entries(operation.fields as SchemaObject)
    .map(([name, schema]) => ({ name, ...edgesOf(schema as SchemaObject) }))
    .filter(({ outside }) => outside.length > 0)
  return fields.length === 0 ? [] : [{ operation, fields }]
})

test('limits: what a schema says of the bounds of a field is what the service checks', async () => {
  let checked = 0
  for (const { operation, fields } of bounded) {
    const made = await prepared(operation)
    const path = made.real(pathOf(operation))
    for (const { name, outside, inside } of fields) {
      const send = async (value: Json) => {
        const body = { ...(operation.body as SchemaObject), [name]: value }
        return await made.api.send(operation.method, path, { body: made.real(JSON.stringify(body)) })
      }
      for (const value of outside) {
        const answer = await send(value)
        const shown = `${operation.id} ${name}=${JSON.stringify(value).slice(0, 40)} → ${answer.status} ${answer.text.slice(0, 200)}`
        assert.ok(answer.status === 413 || (answer.status === 400 && namesField(answer.body, name)), shown)
        checked++
      }
      for (const value of notAtBounds.has(name) ? [] : inside) {
        const answer = await send(value)
        const shown = `${operation.id} ${name}=${JSON.stringify(value).slice(0, 40)} → ${answer.status} ${answer.text.slice(0, 200)}`
        assert.ok(answer.status !== 400 || !namesField(answer.body, name), shown)
      }
    }
  }
  assert.ok(checked > 50, String(checked))
})
