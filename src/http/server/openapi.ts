import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import type { ErrorCode } from '../../errors.ts'
import { ids } from '../../protocol/http/examples.ts'
import { common, files, metrics } from '../../protocol/http/index.ts'
import { assistantDraft, streamEventSchema } from '../../protocol/stream-events.ts'
import { isSessionPath } from './errors.ts'
import type { AnswerSpec, Route } from './route.ts'
import { defined } from '../../lib/defined.ts'
import { statusOf } from '../../lib/error-status.ts'
import { ownVersion } from '../../lib/version.ts'

export type Json = null | boolean | number | string | Json[] | SchemaObject
export type SchemaObject = { [key: string]: Json }

export interface OpenApi extends SchemaObject {
  openapi: string
  info: SchemaObject
  paths: Record<string, SchemaObject>
  components: Components & { securitySchemes: SchemaObject }
}

/** Parts that several operations reference. */
type Components = Record<'schemas' | 'responses' | 'parameters', SchemaObject>

const description = `Atoll runs cloud sandboxes and AI-agent sessions.

Errors of the sandbox API (\`/api\`) are \`{"error": "message", "code": "machine_code"}\`, those of the Sessions API (\`/v1\`)
\`{"error": {"type": "…", "code": "machine_code", "message": "…"}}\`. 429 and 503 carry \`Retry-After\`. Unknown fields and parameters are
\`invalid_request\`; calls that OpenComputer's SDK makes take them and name them in the header \`X-Atoll-Ignored\`, but not inside of objects that have
\`additionalProperties: false\`. Empty parameters other than \`user_id\` are absent ones. Every POST that creates takes \`Idempotency-Key\`: for 24 hours the same key and body have one effect and get the first
answer again; one that says "not now" (404, 409, 429, 5xx) is not kept. A repeat whose first answer was lost is answered with what was made, as it is by then.

In place of a key a browser may have the cookie of \`POST /api/dashboard/sign-in\`, which counts for pages of the server alone.`

/** The OpenAPI 3.1 document of a route table. Schemas with an id become components. */
export function openApi(routes: readonly Route[], version: string): OpenApi {
  const components: Components = { schemas: {}, responses: {}, parameters: {} }
  const paths: Record<string, SchemaObject> = {}
  for (const route of routes) {
    const path = namedPath(route).replaceAll(/:(\w+)/g, '{$1}')
    const item = (paths[path] ??= {})
    item[route.method.toLowerCase()] = operation(route, components)
  }
  // The lines of event streams have these schemas; no answer has them.
  jsonSchema(streamEventSchema, 'output', components)
  jsonSchema(assistantDraft, 'output', components)
  jsonSchema(files.fileChange, 'output', components)
  jsonSchema(metrics.followedSample, 'output', components)
  return {
    openapi: '3.1.0',
    info: { title: 'Atoll', version, description, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: '/' }],
    security: keyOnly([]),
    paths,
    components: {
      schemas: sorted(components.schemas),
      responses: sorted(components.responses),
      parameters: sorted(components.parameters),
      securitySchemes: {
        apiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
        bearer: { type: 'http', scheme: 'bearer' },
        apiKeyInQuery: { type: 'apiKey', in: 'query', name: 'api_key' },
        sessionToken: { type: 'apiKey', in: 'query', name: 'token' },
      },
    },
  }
}

function sorted(object: SchemaObject): SchemaObject {
  return Object.fromEntries(Object.entries(object).toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

/** Adds a named part to the components and returns a reference to it. */
function shared(components: Components, kind: keyof Components, name: string, part: Json): SchemaObject {
  components[kind][name] = part
  return { $ref: `#/components/${kind}/${name}` }
}

function operation(route: Route, components: Components): SchemaObject {
  return {
    operationId: route.id,
    tags: [route.tag],
    summary: route.summary,
    ...defined({ description: route.description }),
    ...security(route),
    parameters: parameters(route, components),
    ...requestBody(route, components),
    responses: responses(route, components),
  }
}

function takesKey(auth: Route['auth']): boolean {
  return auth !== 'none' && auth !== 'probe' && auth !== 'signed'
}

/** A key in a header, which needs these scopes. */
function keyOnly(scopes: string[]): SchemaObject[] {
  return [{ apiKey: scopes }, { bearer: scopes }]
}

function security({ auth, token, scope }: Route): SchemaObject {
  if (!takesKey(auth)) return { security: [] }
  const scopes = scope === 'any' ? [] : [scope]
  const inQuery = auth === 'key_or_query' ? [{ apiKeyInQuery: scopes }] : []
  const session = token === undefined ? [] : [{ sessionToken: [] }]
  return { security: [...keyOnly(scopes), ...inQuery, ...session] }
}

const pathParameters: Record<string, [description: string, example: string]> = {
  id: ['Id or name of the sandbox', ids.sandbox],
  checkpointId: ['Id of the checkpoint, or `SANDBOX/NAME`; below its sandbox also its name', ids.checkpoint],
  cache: ['Id of the cache', ids.cache],
  patchId: ['Id of the patch', ids.patch],
  contextId: ['Id of the context', ids.context],
  execId: ['Id of the exec session or of the command', ids.exec],
  ptyId: ['Id of the terminal', ids.terminal],
  port: ['Port in the sandbox', '3000'],
  path: ['Path and query for the server in the sandbox', 'hello.txt'],
  page: ['Path of the page, with slashes', 'use/api'],
  pid: ['Number of the process in the sandbox', '42'],
  sessionId: ['Id or name of the session', ids.session],
  messageId: ['Id of the message', ids.message],
  capsuleId: ['Id of the capsule', ids.capsule],
  token: ['The token of the capsule', ids.capsuleToken],
  agentId: ['Id of the agent', 'ag-1k8f4z2q7w5c9m3x'],
  webhookId: ['Id of the webhook', ids.webhook],
  deliveryId: ['Id of the delivery', ids.delivery],
  orgId: ['Id of the organisation', ids.org],
  keyId: ['Id of the key', ids.key],
  name: ['Name of the resource', 'tools'],
  storeId: ['Id of the secret store', ids.secretStore],
  secretName: ['Name of the secret', 'OPENAI_API_KEY'],
  host: ['Host of a registry', 'ghcr.io'],
  snapshot: ['Name of the snapshot', 'monday'],
}

/** The rest of an address is a parameter too; only pages have one. */
function namedPath({ path }: Route): string {
  return path.replace(/\*$/, ':page')
}

const idempotencyKey = {
  name: 'Idempotency-Key',
  in: 'header',
  description: 'A repeat with the same key and body has no second effect',
  schema: { type: 'string', maxLength: 255 },
}

function parameters(route: Route, components: Components): Json {
  const inPath = [...namedPath(route).matchAll(/:(\w+)/g)].map(([, name = '']): Json => {
    const parameter = { name, in: 'path', required: true, schema: { type: 'string' } }
    const [what, example] = pathParameters[name] ?? []
    return shared(components, 'parameters', name, { ...parameter, ...defined({ description: what, example }) })
  })
  const key = route.creates ? [shared(components, 'parameters', idempotencyKey.name, idempotencyKey)] : []
  return [
    ...inPath,
    ...fields(route.query, 'query', components),
    ...fields(route.headers, 'header', components),
    ...key,
  ]
}

function fields(type: z.ZodType | undefined, where: 'query' | 'header', components: Components): Json[] {
  if (type === undefined) return []
  const { properties = {}, required = [] } = jsonSchema(type, 'input', components) as {
    properties?: SchemaObject
    required?: string[]
  }
  return Object.entries(properties).map(([name, schema]) => {
    return { name, in: where, required: required.includes(name), schema }
  })
}

function requestBody(route: Route, components: Components): SchemaObject {
  if (route.body === undefined) return {}
  const content: SchemaObject =
    route.body === 'raw'
      ? { '*/*': { schema: { type: 'string', format: 'binary' }, ...defined({ example: route.bodyExample }) } }
      : { 'application/json': { schema: bodySchema(route, route.body, components) } }
  return { requestBody: { required: route.body === 'raw' || !route.body.safeParse({}).success, content } }
}

function bodySchema({ lenient = false }: Route, body: z.ZodType, components: Components): SchemaObject {
  // Zod leaves the examples of a schema with a transform out.
  const { examples } = body.meta() ?? {}
  const schema = { ...jsonSchema(body, 'input', components), ...defined({ examples: examples as Json[] | undefined }) }
  // The route refuses unknown fields; the schema by itself drops them (`unknown-names.ts`).
  const isClosed = !lenient && body instanceof z.ZodObject
  return isClosed ? { ...schema, additionalProperties: false } : schema
}

function responses(route: Route, components: Components): SchemaObject {
  const result: SchemaObject = {}
  for (const [status, answer] of Object.entries(route.answers)) result[status] = response(answer, components)
  for (const [status, codes] of errorsByStatus(route)) {
    result[status] ??= errorResponse(codes.toSorted(), isSessionPath(route.path), components)
  }
  return result
}

function errorResponse(codes: readonly ErrorCode[], isSession: boolean, components: Components): SchemaObject {
  const words = codes.map((code) => code.replaceAll(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase()))
  const answer = {
    description: codes.map((code) => `\`${code}\``).join(', '),
    body: isSession ? common.sessionError : common.sandboxError,
  }
  const name = `${isSession ? 'Session' : ''}${words.join('Or')}`
  return shared(components, 'responses', name, response(answer, components))
}

/** Codes that the route names, and those of the checks before its handler. */
function errorsByStatus(route: Route): Map<number, ErrorCode[]> {
  const codes = new Set<ErrorCode>(['invalid_request', ...(route.errors ?? []), 'internal_error'])
  if (takesKey(route.auth)) {
    codes.add('unauthorized')
    // For a key without the scope, and one of a suspended organisation.
    codes.add('forbidden').add('organisation_suspended')
  }
  // For an id of another shape, or of another organisation.
  if (route.path.includes(':')) codes.add('not_found')
  if (route.auth !== 'probe') codes.add('rate_limited')
  codes.add('unavailable')
  if (route.body !== undefined) codes.add('too_large')
  if (route.creates) codes.add('conflict').add('idempotency_key_conflict')
  return Map.groupBy(codes, (code) => statusOf[code])
}

function response(answer: AnswerSpec, components: Components): SchemaObject {
  const headers = Object.entries(answer.headers ?? {}).map(([name, text]): [string, Json] => {
    return [name, { description: text, schema: { type: 'string' } }]
  })
  return {
    description: answer.description,
    ...(headers.length === 0 ? {} : { headers: Object.fromEntries(headers) }),
    ...(answer.body === undefined && answer.content === undefined
      ? {}
      : {
          content: {
            ...(answer.body && { 'application/json': { schema: jsonSchema(answer.body, 'output', components) } }),
            ...(answer.content && {
              [answer.content]: { schema: { type: 'string' }, ...defined({ example: answer.example }) },
            }),
          },
        }),
  }
}

/** Moves named schemas to the components and references them. */
function jsonSchema(type: z.ZodType, io: 'input' | 'output', components: Components): SchemaObject {
  const {
    $schema: _dialect,
    $defs = {},
    ...schema
  } = z.toJSONSchema(type, { io }) as unknown as SchemaObject & {
    $defs?: SchemaObject
  }
  for (const [name, definition] of Object.entries($defs)) components.schemas[name] = pointed(definition)
  const { id } = schema
  if (typeof id !== 'string') return pointed(schema) as SchemaObject
  return shared(components, 'schemas', id, pointed(schema))
}

/** What has the data of a client, in which `id` and `$ref` are fields as any. */
const dataKeys: ReadonlySet<string> = new Set(['examples', 'default', 'const', 'enum'])

function pointed(value: Json): Json {
  if (Array.isArray(value)) return value.map(pointed)
  if (value === null || typeof value !== 'object') return value
  const entries = Object.entries(value)
    .filter(([key, item]) => !(key === 'id' && typeof item === 'string'))
    .map(([key, item]): [string, Json] => [
      key,
      key === '$ref' && typeof item === 'string'
        ? item.replace('#/$defs/', '#/components/schemas/')
        : dataKeys.has(key)
          ? item
          : pointed(item),
    ])
  return Object.fromEntries(entries)
}

/** The committed document, for readers and client generators; a test fails when it is stale. */
export const openApiFile = new URL('../../../openapi.json', import.meta.url)

/** The document that the server answers with. Making it at each start would take a fifth of the start. */
export async function committedOpenApi(): Promise<OpenApi> {
  return JSON.parse(await readFile(openApiFile, 'utf8')) as OpenApi
}

export function openApiDocument(routes: readonly Route[]): OpenApi {
  return openApi(routes, ownVersion())
}

export function openApiText(routes: readonly Route[]): string {
  return `${jsonLines(openApiDocument(routes))}\n`
}

/** In characters. */
const lineLength = 160

/** Puts a value that fits into a line on one: the document has two thirds of the size of one value a line, and diffs as well. */
function jsonLines(value: Json, indent = ''): string {
  const line = JSON.stringify(value)
  if (value === null || typeof value !== 'object' || indent.length + line.length <= lineLength) return line
  const inner = `${indent} `
  const [open, close, items] = Array.isArray(value)
    ? ['[', ']', value.map((item) => jsonLines(item, inner))]
    : ['{', '}', Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${jsonLines(item, inner)}`)]
  return `${open}\n${items.map((item) => inner + item).join(',\n')}\n${indent}${close}`
}
