import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import type { ErrorCode } from '../../errors.ts'
import { common } from '../../protocol/http/index.ts'
import { streamEventSchema } from '../../protocol/stream-events.ts'
import { routes as allRoutes } from '../routes/index.ts'
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
  components: { schemas: SchemaObject; securitySchemes: SchemaObject }
}

const description = `Atoll runs cloud sandboxes and AI-agent sessions.

Errors of the sandbox API (\`/api\`) are \`{"error": "message", "code": "machine_code"}\`, those of the Sessions API (\`/v1\`)
\`{"error": {"type": "…", "code": "machine_code", "message": "…"}}\`. 429 and 503 carry \`Retry-After\`. Unknown fields and parameters are ignored,
and so are empty parameters other than \`user_id\`. Every POST that creates takes \`Idempotency-Key\`: for 24 hours the same key and body have one effect and get the first
answer again; one that says "not now" (404, 409, 429, 5xx) is not kept. A repeat whose first answer was lost is answered with what was made, as it is by then.`

/** The OpenAPI 3.1 document of a route table. Schemas with an id become components. */
export function openApi(routes: readonly Route[], version: string): OpenApi {
  const schemas: SchemaObject = {}
  const paths: Record<string, SchemaObject> = {}
  for (const route of routes) {
    const path = route.path.replaceAll(/:(\w+)/g, '{$1}')
    const item = (paths[path] ??= {})
    item[route.method.toLowerCase()] = operation(route, schemas)
  }
  // No answer is of this schema: it is that of the lines of an event stream.
  jsonSchema(streamEventSchema, 'output', schemas)
  return {
    openapi: '3.1.0',
    info: { title: 'Atoll', version, description, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: '/' }],
    paths,
    components: {
      schemas: Object.fromEntries(Object.entries(schemas).toSorted(([a], [b]) => (a < b ? -1 : 1))),
      securitySchemes: {
        apiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
        bearer: { type: 'http', scheme: 'bearer' },
        apiKeyInQuery: { type: 'apiKey', in: 'query', name: 'api_key' },
        sessionToken: { type: 'apiKey', in: 'query', name: 'token' },
      },
    },
  }
}

function operation(route: Route, schemas: SchemaObject): SchemaObject {
  return {
    operationId: route.id,
    tags: [route.tag],
    summary: route.summary,
    ...defined({ description: route.description }),
    security: security(route),
    parameters: parameters(route, schemas),
    ...requestBody(route, schemas),
    responses: responses(route, schemas),
  }
}

function security({ auth, token }: Route): Json {
  const session = token === undefined ? [] : [{ sessionToken: [] }]
  if (auth === 'key') return [{ apiKey: [] }, { bearer: [] }, ...session]
  if (auth === 'key_or_query') return [{ apiKey: [] }, { bearer: [] }, { apiKeyInQuery: [] }, ...session]
  return []
}

const pathParameters: Record<string, string> = {
  id: 'Id of the sandbox',
  checkpointId: 'Id of the checkpoint',
  patchId: 'Id of the patch',
  execId: 'Id of the exec session or of the command',
  ptyId: 'Id of the terminal',
  port: 'Port in the sandbox',
  pid: 'Number of the process in the sandbox',
  sessionId: 'Id of the session',
  messageId: 'Id of the message',
  agentId: 'Id of the agent',
  webhookId: 'Id of the webhook',
  deliveryId: 'Id of the delivery',
  storeId: 'Id of the secret store',
  name: 'Name of the resource',
  snapshot: 'Name of the snapshot',
}

function parameters(route: Route, schemas: SchemaObject): Json {
  const inPath = [...route.path.matchAll(/:(\w+)/g)].map(([, name = '']): Json => ({
    name,
    in: 'path',
    ...defined({ description: pathParameters[name] }),
    required: true,
    schema: { type: 'string' },
  }))
  const key: Json[] = route.creates
    ? [
        {
          name: 'Idempotency-Key',
          in: 'header',
          description: 'A repeat with the same key and body has no second effect',
          schema: { type: 'string', maxLength: 255 },
        },
      ]
    : []
  return [...inPath, ...fields(route.query, 'query', schemas), ...fields(route.headers, 'header', schemas), ...key]
}

function fields(type: z.ZodType | undefined, where: 'query' | 'header', schemas: SchemaObject): Json[] {
  if (type === undefined) return []
  const { properties = {}, required = [] } = jsonSchema(type, 'input', schemas) as {
    properties?: SchemaObject
    required?: string[]
  }
  return Object.entries(properties).map(([name, schema]) => {
    return { name, in: where, required: required.includes(name), schema }
  })
}

function requestBody(route: Route, schemas: SchemaObject): SchemaObject {
  if (route.body === undefined) return {}
  const content: SchemaObject =
    route.body === 'raw'
      ? { '*/*': { schema: { type: 'string', format: 'binary' } } }
      : { 'application/json': { schema: jsonSchema(route.body, 'input', schemas) } }
  return { requestBody: { required: route.body === 'raw' || !route.body.safeParse({}).success, content } }
}

function responses(route: Route, schemas: SchemaObject): SchemaObject {
  const result: SchemaObject = {}
  for (const [status, answer] of Object.entries(route.answers)) result[status] = response(answer, schemas)
  const error = isSessionPath(route.path) ? common.sessionError : common.sandboxError
  for (const [status, codes] of errorsByStatus(route)) {
    result[status] ??= response({ description: codes.map((code) => `\`${code}\``).join(', '), body: error }, schemas)
  }
  return result
}

/** What the route names, and what every request can meet before it gets there. */
function errorsByStatus(route: Route): Map<number, ErrorCode[]> {
  const codes = new Set<ErrorCode>(['invalid_request', ...(route.errors ?? []), 'internal_error'])
  if (route.auth === 'key' || route.auth === 'key_or_query') codes.add('unauthorized')
  // An id of another shape, and of another organisation.
  if (route.path.includes(':')) codes.add('not_found')
  if (route.token === 'steer') codes.add('forbidden')
  if (route.auth !== 'probe') codes.add('rate_limited')
  codes.add('unavailable')
  if (route.body !== undefined) codes.add('too_large')
  if (route.creates) codes.add('conflict').add('idempotency_key_conflict')
  return Map.groupBy(codes, (code) => statusOf[code])
}

function response(answer: AnswerSpec, schemas: SchemaObject): SchemaObject {
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
            ...(answer.body && { 'application/json': { schema: jsonSchema(answer.body, 'output', schemas) } }),
            ...(answer.content && { [answer.content]: { schema: { type: 'string' } } }),
          },
        }),
  }
}

/** Moves named schemas to the components and points there. */
function jsonSchema(type: z.ZodType, io: 'input' | 'output', schemas: SchemaObject): SchemaObject {
  const {
    $schema: _dialect,
    $defs = {},
    ...schema
  } = z.toJSONSchema(type, { io }) as unknown as SchemaObject & {
    $defs?: SchemaObject
  }
  for (const [name, definition] of Object.entries($defs)) schemas[name] = pointed(definition) as SchemaObject
  const { id } = schema
  if (typeof id !== 'string') return pointed(schema) as SchemaObject
  schemas[id] = pointed(schema)
  return { $ref: `#/components/schemas/${id}` }
}

function pointed(value: Json): Json {
  if (Array.isArray(value)) return value.map(pointed)
  if (value === null || typeof value !== 'object') return value
  const entries = Object.entries(value)
    .filter(([key, item]) => !(key === 'id' && typeof item === 'string'))
    .map(([key, item]): [string, Json] => [
      key,
      key === '$ref' && typeof item === 'string' ? item.replace('#/$defs/', '#/components/schemas/') : pointed(item),
    ])
  return Object.fromEntries(entries)
}

/** The committed document, for readers and client generators; a test fails when it is stale. */
export const openApiFile = new URL('../../../openapi.json', import.meta.url)

/** What the server answers with: to make it anew at each start would take a fifth of the start. */
export async function committedOpenApi(): Promise<OpenApi> {
  return JSON.parse(await readFile(openApiFile, 'utf8')) as OpenApi
}

export function openApiDocument(): OpenApi {
  return openApi(allRoutes, ownVersion())
}

export function openApiText(): string {
  return `${JSON.stringify(openApiDocument(), null, 2)}\n`
}
