import { ServiceError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import { readJsonObject, type JsonField } from '../lib/json-object.ts'
import { assertServed, ruledNames } from './request-rules.ts'
import { folded, ShapeReader } from './shape-reader.ts'
import { defaultAllowList, type AllowList } from './shapes/allow.ts'
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
const readNames = new Set(['model', 'models', 'fallbacks', 'stream', 'stream_options', 'store', ...ruledNames])

export interface RequestTerms {
  allowList: AllowList
  /** Answers to chat completions are kept unless the request says otherwise. */
  keepsCompletions: boolean
}

const defaultTerms: RequestTerms = { allowList: defaultAllowList, keepsCompletions: false }

/**
 * Reads the model of a body and returns what is forwarded: the same bytes without what the shape of the wire cuts, and with what is added
 * here. Anything that two parsers can read differently is refused: a repeated name, and a name in other letter case, which Go's parsers
 * accept. In `body`, blanks replace what is cut. Throws `RefusedField` for what the allow-list does not have, and `invalid_request`.
 */
export async function modelRequest(wire: Wire, body: Buffer, terms = defaultTerms): Promise<ModelRequest> {
  const shapes = new ShapeReader(body, wire.name, terms.allowList.shapes[wire.name])
  const { fields, closedAt, valueCount } = await readJsonObject(body, shapes)
  const found = readFields(fields)
  const text = (name: string): string => {
    const { start, end } = found.get(name) ?? { start: 0, end: 0 }
    if (end - start > readBytesMax) throw invalid(`${name}: is too long.`)
    // Blank where the field was cut.
    return body.toString('utf8', start, end).trim()
  }
  const read = (name: string): unknown => {
    const value = text(name)
    return value === '' ? undefined : JSON.parse(value)
  }
  const model = read('model')
  if (typeof model !== 'string' || model === '' || model.length > modelCharactersMax) {
    throw invalid('model: must be the name of a model.')
  }
  // Routers in front of several models accept fallback models here, which would bypass the list of the session's models.
  for (const name of ['models', 'fallbacks']) {
    if ((read(name) ?? null) !== null) throw invalid(`${name}: only one model may be named.`)
  }
  assertServed(read)

  const changes: Change[] = []
  if (wire.name === 'openai-completions') {
    const stream = read('stream') ?? false
    // Some servers accept `1` or `"true"` as true.
    if (typeof stream !== 'boolean') throw invalid('stream: must be true or false.')
    if (stream) changes.push(usageRequest(found.get('stream_options'), read('stream_options')))
  }
  // What the model API keeps belongs to no session. Responses are kept unless the request says otherwise.
  const isKept = wire.name === 'openai-responses' || found.has('store') || terms.keepsCompletions
  if (wire.provider === 'openai' && isKept && text('store') === '') changes.push({ text: '"store":false' })
  const pieces = changed(body, closedAt, changes)
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
function usageRequest(field: JsonField | undefined, value: unknown): Change {
  const others = Object.entries(isRecord(value) ? value : {}).filter(([name]) => !usageOptions.has(folded(name)))
  const options = JSON.stringify({ ...Object.fromEntries(others), include_usage: true })
  return field ? { field, text: options } : { text: `"stream_options":${options}` }
}

interface Change {
  /** Whose value is replaced. Absent: the text is a further field. */
  field?: JsonField
  text: string
}

/** At most one change may replace a value. */
function changed(body: Buffer, closedAt: number, changes: readonly Change[]): Buffer[] {
  const pieces: Buffer[] = []
  let at = 0
  for (const { field, text } of changes) {
    if (!field) continue
    pieces.push(body.subarray(at, field.start), Buffer.from(text))
    at = field.end
  }
  // The comma is valid: at least the field `model` precedes.
  const added = changes.filter(({ field }) => !field).map(({ text }) => `,${text}`)
  if (added.length === 0) return [...pieces, body.subarray(at)]
  return [...pieces, body.subarray(at, closedAt), Buffer.from(added.join('')), body.subarray(closedAt)]
}

function invalid(message: string): ServiceError {
  return new ServiceError('invalid_request', message)
}
