import { ServiceError } from '../errors.ts'
import { folded, type JsonItem, type WatchedLists } from './json-items.ts'
import type { JsonField } from './json-object.ts'
import type { Wire } from './wires.ts'

/**
 * Rules that make tokens the only cost of a request, at rates that the operator knows: only tools that the client runs, the usual tier and
 * the usual speed. Everything else is billed separately by the model API, or at another price.
 */

/** Tools that the client runs. All others run at the model API. */
const clientTools: Record<Wire['name'], RegExp> = {
  'anthropic-messages': /^(custom|(bash|text_editor|computer|memory)_\d{8})$/,
  'openai-completions': /^(function|custom)$/,
  'openai-responses': /^(function|custom|local_shell|apply_patch|computer|computer_use_preview)$/,
}

/** Allowed values of fields that can change the price. */
const choices: Readonly<Record<string, readonly string[]>> = {
  service_tier: ['auto', 'default', 'standard', 'standard_only'],
  speed: ['standard'],
  inference_geo: ['global'],
}

/** Answers per question. With several, servers report the usage of each, or of all together. */
const counts = ['n', 'best_of'] as const

/** Lists with inspected items. Tools can also appear inside earlier messages. */
const lists = ['tools', 'messages', 'input'] as const

/** Names that are parsed here, and which must be unique and in these letters. */
export const ruledNames: readonly string[] = [...lists, ...counts, 'modalities', ...Object.keys(choices)]

/** Folded. Most belong to routers in front of several model APIs. */
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

/** Objects stored in the account at OpenAI belong to no session, and a stored prompt has tools of its own. */
const keptNames = new Set(['conversation', 'previous_response_id', 'prompt'])

/** Longer values are not empty. */
const nothingBytesMax = 16

/** Checks the items of the body's lists while the body is read. */
export function watchedLists(wire: Wire['name']): WatchedLists {
  return {
    lists: new Set(lists),
    names: new Set(['type', 'tools', 'role']),
    onItem(list, index, item) {
      const fault = list === 'tools' ? toolFault(wire, item) : list === 'input' ? inputFault(item) : undefined
      if (fault) throw invalid(`${list}[${index}]${fault[0]}`, fault[1])
      // Some models accept further tools inside messages.
      if (item.fields.has('tools'))
        throw invalid(`${list}[${index}].tools`, 'tools are served only in the outermost field.')
    },
  }
}

/** Checks the outermost fields. `read` returns the value of one of `ruledNames`. Throws `invalid_request`. */
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
        ? 'is not served: it refers to an object in the account of the model API.'
        : 'is not served: its cost is not reported in tokens.',
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

/** Anthropic's beta features that do not change the price of tokens. */
export function servedBetas(header: string | undefined): string | undefined {
  const named = header?.split(',').map((name) => name.trim()) ?? []
  // A long context doubles the price where it applies. Clients that name it work without it.
  const served = named.filter((name) => name !== '' && !/^context-1m-/i.test(name))
  return served.length === 0 ? undefined : served.join(',')
}

/** A field, appended to the path of its item, and what is wrong with it. */
type ItemFault = [field: string, what: string] | undefined

const noObject: ItemFault = ['', 'must be an object.']

function toolFault(wire: Wire['name'], { isObject, fields }: JsonItem): ItemFault {
  if (!isObject) return noObject
  // Some servers on OpenAI's wire name their own tools by another field than `type`.
  if (!fields.has('type') && wire === 'anthropic-messages') return undefined
  const type = fields.get('type')
  if (type !== undefined && clientTools[wire].test(type)) return undefined
  return ['.type', 'must be a tool that the client runs: the cost of others is not reported in tokens.']
}

function inputFault({ isObject, fields }: JsonItem): ItemFault {
  if (!isObject) return noObject
  const type = fields.get('type')
  // A reference to an item stored in the account needs no type, but has no role either.
  const isReference = type === undefined ? !fields.has('role') : type === 'item_reference'
  return isReference
    ? ['.type', 'must be an item of the conversation: references to stored items are not served.']
    : undefined
}

/** A list field with an object was not inspected, so it is refused. */
function assertList(body: Buffer, { name, start, end }: JsonField): void {
  if (!(lists as readonly string[]).includes(name)) return
  const first = body.toString('latin1', start, start + 1)
  if (first === '[' || body.toString('latin1', start, end) === 'null') return
  if (name === 'input' && first === '"') return
  throw invalid(name, 'must be a list.')
}

/** Some clients send every field that they know, empty. */
function isNothing(body: Buffer, { start, end }: JsonField): boolean {
  if (end - start > nothingBytesMax) return false
  const value: unknown = JSON.parse(body.toString('utf8', start, end))
  return value === null || value === false || value === '' || (Array.isArray(value) && value.length === 0)
}

function invalid(place: string, what: string): ServiceError {
  return new ServiceError('invalid_request', `${place}: ${what}`)
}
