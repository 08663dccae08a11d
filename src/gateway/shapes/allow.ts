import type { ModelApi } from '../../protocol/agent.ts'
import { anthropicMessages } from './anthropic-messages.ts'
import { openaiCompletions } from './openai-completions.ts'
import { openaiResponses } from './openai-responses.ts'
import { free, type ObjectShape, type Shape } from './shape.ts'

/** What the gateway serves, by wire. */
export interface AllowList {
  shapes: Readonly<Record<ModelApi, Shape>>
  /** Names of beta features, beyond those that everybody may use. */
  betas: ReadonlySet<string>
}

const shapes: Readonly<Record<ModelApi, Shape>> = {
  'anthropic-messages': anthropicMessages,
  'openai-completions': openaiCompletions,
  'openai-responses': openaiResponses,
}

export const defaultAllowList: AllowList = { shapes, betas: new Set() }

const betaPrefix = 'anthropic-beta:'
const namePattern = /^([a-z-]+):((?:[\w-]+(?:\[\])*\.)*[\w-]+)(?:=(\S+))?$/

/**
 * The gateway's list with more names: `wire:path` of a field, whose value then is free, `wire:path.type=name` of a type of objects, or
 * `anthropic-beta:name`. Lists in a path are written as `[]`. `refuse` gets each name that adds nothing.
 */
export function allowing(names: readonly string[], refuse: (name: string, why: string) => void): AllowList {
  const allowed: Record<ModelApi, Shape> = { ...shapes }
  const betas = new Set<string>()
  for (const name of names) {
    if (name.startsWith(betaPrefix)) {
      betas.add(name.slice(betaPrefix.length).toLowerCase())
      continue
    }
    const [, wire = '', path = '', type] = namePattern.exec(name) ?? []
    const shape = Object.hasOwn(allowed, wire) ? allowed[wire as ModelApi] : undefined
    const extended = shape && extend(shape, path.replaceAll('[]', '.[]').split('.'), type)
    if (extended) allowed[wire as ModelApi] = extended
    else refuse(name, shape ? 'names no place in a request' : 'must be wire:path')
  }
  return { shapes: allowed, betas }
}

/** `undefined` when there is no such place. Shapes are shared by several places, so those on the path are copied. */
function extend(shape: Shape, [step = '', ...rest]: readonly string[], type: string | undefined): Shape | undefined {
  if (step === '[]') {
    const items = shape.list && extend(shape.list, rest, type)
    return items && { ...shape, list: items }
  }
  const { object } = shape
  if (!object) return undefined
  if (rest.length > 0) {
    const field = object.fields.get(step)
    const extended = field && extend(field, rest, type)
    return extended && { ...shape, object: { ...object, fields: new Map(object.fields).set(step, extended) } }
  }
  if (type === undefined) return { ...shape, object: withField(object, step) }
  const { variants } = object
  if (!variants || step !== 'type') return undefined
  return { ...shape, object: { ...object, variants: { ...variants, types: new Map(variants.types).set(type, 'all') } } }
}

function withField(object: ObjectShape, name: string): ObjectShape {
  const fields = new Map(object.fields).set(name, free)
  const { variants } = object
  if (!variants) return { ...object, fields }
  const names = (own: ReadonlySet<string> | 'all') => (own === 'all' ? own : new Set([...own, name]))
  return {
    ...object,
    fields,
    variants: {
      ...variants,
      types: new Map([...variants.types].map(([type, own]) => [type, names(own)])),
      patterns: variants.patterns.map(([pattern, own]) => [pattern, names(own)] as const),
      untyped: variants.untyped && names(variants.untyped),
    },
  }
}
