import { ServiceError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import { folded } from './json-items.ts'
import { readJsonObject, type JsonField } from './json-object.ts'
import { assertServed, ruledNames, watchedLists } from './request-rules.ts'
import type { Wire } from './wires.ts'

export interface ModelRequest {
  model: string
  /** What is sent on, one after another: pieces of the body that came, so that no second copy of it is held. */
  pieces: readonly Buffer[]
  byteCount: number
  valueCount: number
}

const modelCharactersMax = 200
/** Values that are read here are short, others are passed on unread. */
const readBytesMax = 4096

/** What is read here: behind the gateway nobody may find something else under these names. */
const readNames = new Set(['model', 'models', 'fallbacks', 'background', 'stream', 'stream_options', ...ruledNames])

/**
 * The model that a body asks for. The body is sent on as it came, so what two parsers may read differently is refused: a name
 * that stands twice, of which some take the first and some the last, and a name in other letters, which those of Go take too. So
 * is what costs more than its tokens (`request-rules.ts`). Throws `invalid_request`.
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
  // Servers in front of several models take more names here, for when that model fails, and nobody has checked those.
  for (const name of ['models', 'fallbacks']) {
    if ((read(name) ?? null) !== null) throw invalid(`${name}: only one model may be named.`)
  }
  assertServed(wire.name, body, fields, read)
  // It is answered at once, and what it costs is told to those who ask for it later, which nobody can do here.
  if (wire.name === 'openai-responses' && read('background')) throw invalid('background: is not served here.')

  let pieces = [body]
  if (wire.name === 'openai-completions') {
    const stream = read('stream') ?? false
    // Some servers take `1` or `"true"` for true.
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
    if (found.has(name)) throw invalid(`${name}: stands there twice.`)
    found.set(name, field)
  }
  return found
}

/** Of some servers the second tells it along with the text, where it is not that of the whole answer. */
const usageOptions = new Set(['include_usage', 'continuous_usage_stats'])

/** OpenAI's streams tell their usage only to those who ask: the budget depends on it, whatever the client wants. */
function withUsage(body: Buffer, closedAt: number, field: JsonField | undefined, value: unknown): Buffer[] {
  const others = Object.entries(isRecord(value) ? value : {}).filter(([name]) => !usageOptions.has(folded(name)))
  const options = JSON.stringify({ ...Object.fromEntries(others), include_usage: true })
  if (field) return [body.subarray(0, field.start), Buffer.from(options), body.subarray(field.end)]
  // There is a field before it: the model.
  return [body.subarray(0, closedAt), Buffer.from(`,"stream_options":${options}`), body.subarray(closedAt)]
}

function invalid(message: string): ServiceError {
  return new ServiceError('invalid_request', message)
}
