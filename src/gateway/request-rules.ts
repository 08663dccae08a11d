import { ServiceError } from '../errors.ts'
import { folded, type JsonItem, type WatchedLists } from './json-items.ts'
import type { JsonField } from './json-object.ts'
import type { Wire } from './wires.ts'

/**
 * What a request may ask for, so that its tokens are all that it costs, at the rates that the operator knows: tools of the
 * client's own, the usual tier and speed. The rest runs at the model API and is billed apart, or has another price.
 */

/** Tools that the client runs. All others are the model API's own. */
const clientTools: Record<Wire['name'], RegExp> = {
  'anthropic-messages': /^(custom|(bash|text_editor|computer|memory)_\d{8})$/,
  'openai-completions': /^(function|custom)$/,
  'openai-responses': /^(function|custom|local_shell|apply_patch|computer|computer_use_preview)$/,
}

/** Fields with values that have a price of their own: all of those that have not. */
const choices: Readonly<Record<string, readonly string[]>> = {
  service_tier: ['auto', 'default', 'standard', 'standard_only'],
  speed: ['standard'],
  inference_geo: ['global'],
}

/** Answers to one question. Of several, servers tell the usage of each, or of all together. */
const counts = ['n', 'best_of'] as const

/** Lists whose items are looked at. Tools can also come along with what was said before. */
const lists = ['tools', 'messages', 'input'] as const

/** Names whose values are read here, and which therefore may stand there once and in these letters alone. */
export const ruledNames: readonly string[] = [...lists, ...counts, 'modalities', ...Object.keys(choices)]

/** Folded. Servers in front of several model APIs have most of them. */
const refusedNames = new Set(
  [
    'anthropic_beta',
    'audio',
    'betas',
    'container',
    'context_window_fallback_dict',
    'data_sources',
    'deferred',
    'enable_search',
    'extra_body',
    'mcp_servers',
    'plugins',
    'preset',
    'provider',
    'providerOptions',
    'search_parameters',
    'web_search_options',
  ].map(folded),
)

/** What the account keeps at OpenAI belongs to no session, and a kept prompt has tools of its own. */
const keptNames = new Set(['conversation', 'previous_response_id', 'prompt'])

/** Longer values are something. */
const nothingBytesMax = 16

/** Checks the items of the body's lists while it is read. */
export function watchedLists(wire: Wire['name']): WatchedLists {
  return {
    lists: new Set(lists),
    names: new Set(['type', 'tools', 'role']),
    onItem(list, index, item) {
      const fault = list === 'tools' ? toolFault(wire, item) : list === 'input' ? inputFault(item) : undefined
      if (fault) throw invalid(`${list}[${index}]${fault.field}`, fault.what)
      // Some models are offered further tools by what was said.
      if (item.fields.has('tools')) throw invalid(`${list}[${index}].tools`, 'tools are served at the outside alone.')
    },
  }
}

/** Checks the outermost fields. `read` gives the value of one of `ruledNames`. Throws `invalid_request`. */
export function assertServed(
  wire: Wire['name'],
  body: Buffer,
  fields: readonly JsonField[],
  read: (name: string) => unknown,
): void {
  for (const field of fields) {
    const name = folded(field.name)
    const isKept = wire === 'openai-responses' && keptNames.has(name)
    if ((!refusedNames.has(name) && !isKept) || isNothing(body, field)) continue
    throw invalid(
      field.name,
      isKept
        ? 'what is kept at the model API is not served here.'
        : 'is not served here: what it costs is not told in tokens.',
    )
  }
  for (const field of fields) assertList(body, field)
  for (const [name, served] of Object.entries(choices)) {
    const value = read(name) ?? null
    if (value === null || (typeof value === 'string' && served.includes(value))) continue
    throw invalid(name, `must be one of ${served.join(', ')}: others have another price.`)
  }
  for (const name of counts) {
    if ((read(name) ?? 1) !== 1) throw invalid(name, 'must be 1.')
  }
  const modalities = read('modalities') ?? []
  if (!Array.isArray(modalities) || modalities.some((modality) => modality !== 'text')) {
    throw invalid('modalities', 'must be text alone: others have another price.')
  }
}

/** Of Anthropic's beta features, those that leave the price of tokens as it is. */
export function servedBetas(header: string | undefined): string | undefined {
  const named = header?.split(',').map((name) => name.trim()) ?? []
  // Where it has an effect, a long context costs twice as much. Clients that name it can do without.
  const served = named.filter((name) => name !== '' && !/^context-1m-/i.test(name))
  return served.length === 0 ? undefined : served.join(',')
}

interface ItemFault {
  /** Behind the item's place. */
  field: string
  what: string
}

const noObject: ItemFault = { field: '', what: 'must be an object.' }

function toolFault(wire: Wire['name'], { isObject, fields }: JsonItem): ItemFault | undefined {
  if (!isObject) return noObject
  // On OpenAI's wire there are servers that tell their own tools by another name than `type`.
  if (!fields.has('type') && wire === 'anthropic-messages') return undefined
  const type = fields.get('type')
  if (type !== undefined && clientTools[wire].test(type)) return undefined
  return {
    field: '.type',
    what: 'must be that of a tool which the client runs: what others cost is not told in tokens.',
  }
}

function inputFault({ isObject, fields }: JsonItem): ItemFault | undefined {
  if (!isObject) return noObject
  const type = fields.get('type')
  // A reference to something that the account keeps needs no type, but has no role either.
  const isReference = type === undefined ? !fields.has('role') : type === 'item_reference'
  return isReference
    ? { field: '.type', what: 'must be that of something said: what is kept is not served here.' }
    : undefined
}

/** In an object where a list is meant nobody has looked. */
function assertList(body: Buffer, { name, start, end }: JsonField): void {
  if (!(lists as readonly string[]).includes(name)) return
  const first = body.toString('latin1', start, start + 1)
  if (first === '[' || body.toString('latin1', start, end) === 'null') return
  if (name === 'input' && first === '"') return
  throw invalid(name, 'must be a list.')
}

/** Some clients send all fields that they know. */
function isNothing(body: Buffer, { start, end }: JsonField): boolean {
  if (end - start > nothingBytesMax) return false
  const value: unknown = JSON.parse(body.toString('utf8', start, end))
  return value === null || value === false || value === '' || (Array.isArray(value) && value.length === 0)
}

function invalid(place: string, what: string): ServiceError {
  return new ServiceError('invalid_request', `${place}: ${what}`)
}
