import assert from 'node:assert/strict'
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { routes } from '../../src/http/routes/index.ts'
import { type SchemaObject, type OpenApi, openApiDocument } from '../../src/http/server/openapi.ts'
import { defined } from '../../src/lib/defined.ts'

export interface ApiRequest {
  /** Sent as JSON, or as it is when it is bytes. */
  body?: unknown
  headers?: Record<string, string>
  /** `null` sends none; default the client's. */
  key?: string | null
  host?: string
}

export interface ApiAnswer {
  status: number
  headers: IncomingHttpHeaders
  bytes: Buffer
  text: string
  /** Parsed when it is JSON. */
  // oxlint-disable-next-line typescript/no-explicit-any
  body: any
}

/** A client that accepts only answers that `openapi.json` promises. */
export class ApiClient {
  readonly origin: string
  readonly key: string

  constructor(origin: string, key: string) {
    this.origin = origin
    this.key = key
  }

  async get(path: string, options: ApiRequest = {}): Promise<ApiAnswer> {
    return await this.send('GET', path, options)
  }

  async post(path: string, body?: unknown, options: ApiRequest = {}): Promise<ApiAnswer> {
    return await this.send('POST', path, { ...options, body })
  }

  async put(path: string, body?: unknown, options: ApiRequest = {}): Promise<ApiAnswer> {
    return await this.send('PUT', path, { ...options, body })
  }

  async delete(path: string, options: ApiRequest = {}): Promise<ApiAnswer> {
    return await this.send('DELETE', path, options)
  }

  async send(method: string, path: string, options: ApiRequest = {}): Promise<ApiAnswer> {
    const answer = await this.raw(method, path, options)
    checkAgainstDocument(method, path, answer)
    return answer
  }

  /** Without the check, for addresses that do not exist. */
  async raw(
    method: string,
    path: string,
    { body, headers = {}, key = this.key, host }: ApiRequest = {},
  ): Promise<ApiAnswer> {
    const isBytes = body instanceof Uint8Array
    const payload =
      body === undefined ? undefined : isBytes ? body : typeof body === 'string' ? body : JSON.stringify(body)
    return await exchange(this.origin + path, {
      method,
      headers: {
        ...(key === null ? {} : { 'x-api-key': key }),
        ...(payload === undefined || isBytes ? {} : { 'content-type': 'application/json' }),
        ...(host === undefined ? {} : { host }),
        ...headers,
      },
      payload,
    })
  }
}

export interface Exchange {
  method?: string
  headers?: Record<string, string>
  payload?: string | Uint8Array | undefined
  /** Address of this machine to come from. */
  localAddress?: string
  signal?: AbortSignal
}

/** One request over a connection of its own. `fetch` would not let us choose `Host`. */
export async function exchange(
  url: string,
  { method = 'GET', headers = {}, payload, localAddress, signal }: Exchange = {},
): Promise<ApiAnswer> {
  return await new Promise((resolve, reject) => {
    const isChunked = headers['transfer-encoding'] !== undefined
    const length = payload === undefined || isChunked ? {} : { 'content-length': String(Buffer.byteLength(payload)) }
    const options = { method, agent: false, headers: { ...length, ...headers }, ...defined({ localAddress, signal }) }
    const outgoing = httpRequest(url, options, (incoming) => {
      const chunks: Buffer[] = []
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
      incoming.on('error', reject)
      incoming.on('end', () => {
        const bytes = Buffer.concat(chunks)
        const text = bytes.toString()
        const isJson = (incoming.headers['content-type'] ?? '').startsWith('application/json') && text !== ''
        const body: unknown = isJson ? JSON.parse(text) : undefined
        resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, bytes, text, body })
      })
    })
    outgoing.on('error', reject)
    outgoing.end(payload)
  })
}

const document: OpenApi = openApiDocument(routes)
const ajv = new Ajv2020({ strict: false, allErrors: true })
ajv.addSchema(document, 'openapi')

const validators = new Map<string, ValidateFunction>()

/** The check of a schema in the document, compiled once. */
function validatorAt(path: string[]): ValidateFunction {
  const pointer = path.map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/')
  const validate = validators.get(pointer) ?? ajv.compile({ $ref: `openapi#/${pointer}` })
  validators.set(pointer, validate)
  return validate
}

const templates = Object.keys(document.paths).map((path) => ({
  path,
  // A page of the documentation may lie in folders.
  pattern: new RegExp(`^${path.replace('{page}', '.*').replaceAll(/\{\w+\}/g, '[^/]+')}$`),
  parameters: path.split('{').length - 1,
}))

/** Where a shared part of the document is, if this is a reference to one. */
function placeOf({ $ref }: SchemaObject): string[] | undefined {
  return typeof $ref === 'string' ? $ref.replace('#/', '').split('/') : undefined
}

function checkAgainstDocument(method: string, target: string, answer: ApiAnswer): void {
  const [pathname = ''] = target.split('?', 1)
  const [template] = templates
    .filter(({ pattern }) => pattern.test(pathname))
    .toSorted((a, b) => a.parameters - b.parameters)
  assert.ok(template, `${pathname} is not in openapi.json`)
  const operation = document.paths[template.path]?.[method.toLowerCase()] as SchemaObject | undefined
  assert.ok(operation, `${method} ${template.path} is not in openapi.json`)
  const own = (operation['responses'] as SchemaObject)[String(answer.status)] as SchemaObject | undefined
  const shown = `${method} ${template.path} → ${answer.status} ${answer.text.slice(0, 300)}`
  assert.ok(own, `not in openapi.json: ${shown}`)
  const place = placeOf(own) ?? ['paths', template.path, method.toLowerCase(), 'responses', String(answer.status)]
  const response = place.reduce((part: SchemaObject, key) => part[key] as SchemaObject, document)
  const content = response['content'] as SchemaObject | undefined
  if (content === undefined || method === 'HEAD') {
    assert.equal(answer.bytes.length, 0, `a body where none is promised: ${shown}`)
    return
  }
  if (content['application/json'] === undefined || content['*/*'] !== undefined) return
  assert.match(answer.headers['content-type'] ?? '', /^application\/json\b/, shown)
  const validate = validatorAt([...place, 'content', 'application/json', 'schema'])
  assert.ok(validate(answer.body), `${shown}: ${ajv.errorsText(validate.errors)}`)
  if (answer.status === 429 || answer.status === 503)
    assert.ok(answer.headers['retry-after'], `no Retry-After: ${shown}`)
}
