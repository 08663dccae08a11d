import { ServiceError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import { folded } from './json-items.ts'
import { readJsonObject, type JsonField } from './json-object.ts'
import { assertServed, ruledNames, watchedLists } from './request-rules.ts'
import type { Wire } from './wires.ts'

export interface ModelRequest {
  model: string
  /** The body to send: slices of the received body, so that no second copy is held. */
  pieces: readonly Buffer[]
  byteCount: number
  valueCount: number
}

const modelCharactersMax = 200
/** Values that are parsed here are short; others are passed on unread. */
const readBytesMax = 4096

/** Names that are parsed here. The upstream must not find another value under them. */
const readNames = new Set(['model', 'models', 'fallbacks', 'background', 'stream', 'stream_options', ...ruledNames])

/**
 * Reads the model of a body, which is forwarded unchanged. So anything that two parsers can read differently is refused: a repeated name,
 * and a name in other letter case, which Go's parsers accept. `request-rules.ts` refuses requests that cost more than their tokens. Throws
 * `invalid_request`.
 */
export async function modelRequest(wire: Wire, body: Buffer): Promise<ModelRequest> {
  const { fields, closedAt, valueCount } = await readJsonObject(body, watchedLists(wire.name))
  const found = readFields(fields)
  const read = (name: string): unknown => {
    const { start, end } = found.get(name) ?? { start: 0, end: 0 }
    if (end - start > readBytesMax) throw invalid(`${name}: is too long.`)
    return start === end ? undefined : JSON.parse(body.toString('utf8', start, end))
  }
  const model = read('model')
  if (typeof model !== 'string' || model === '' || model.length > modelCharactersMax) {
    throw invalid('model: must be the name of a model.')
  }
  // Routers in front of several models accept fallback models here, which would bypass the allow-list.
  for (const name of ['models', 'fallbacks']) {
    if ((read(name) ?? null) !== null) throw invalid(`${name}: only one model may be named.`)
  }
  assertServed(wire.name, body, fields, read)
  // A background response reports its usage only to later polls, which the gateway does not serve.
  if (wire.name === 'openai-responses' && read('background')) throw invalid('background: is not served here.')

  let pieces = [body]
  if (wire.name === 'openai-completions') {
    const stream = read('stream') ?? false
    // Some servers accept `1` or `"true"` as true.
    if (typeof stream !== 'boolean') throw invalid('stream: must be true or false.')
    if (stream) pieces = withUsage(body, closedAt, found.get('stream_options'), read('stream_options'))
  }
  return { model, pieces, byteCount: pieces.reduce((total, piece) => total + piece.length, 0), valueCount }
}

function readFields(fields: readonly JsonField[]): ReadonlyMap<string, JsonField> {
  const found = new Map<string, JsonField>()
  for (const field of fields) {
    const name = folded(field.name)
    if (!readNames.has(name)) continue
    if (field.name !== name) throw invalid(`${field.name}: must be written ${name}.`)
    if (found.has(name)) throw invalid(`${name}: is repeated.`)
    found.set(name, field)
  }
  return found
}

/** With the second option some servers report usage along with the text, before it is final. */
const usageOptions = new Set(['include_usage', 'continuous_usage_stats'])

/** OpenAI's streams report usage only on request. The budget needs it, so it is always requested. */
function withUsage(body: Buffer, closedAt: number, field: JsonField | undefined, value: unknown): Buffer[] {
  const others = Object.entries(isRecord(value) ? value : {}).filter(([name]) => !usageOptions.has(folded(name)))
  const options = JSON.stringify({ ...Object.fromEntries(others), include_usage: true })
  if (field) return [body.subarray(0, field.start), Buffer.from(options), body.subarray(field.end)]
  // The comma is valid: at least the field `model` precedes.
  return [body.subarray(0, closedAt), Buffer.from(`,"stream_options":${options}`), body.subarray(closedAt)]
}

function invalid(message: string): ServiceError {
  return new ServiceError('invalid_request', message)
}
