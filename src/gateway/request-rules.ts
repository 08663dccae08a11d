import { ServiceError } from '../errors.ts'

/**
 * Rules about the values of outermost fields, which make tokens the only cost of a request, at rates that the operator knows: the usual
 * tier, the usual speed, and one answer. Which fields there may be is in `shapes/`.
 */

/** Allowed values of fields that can change the price. */
const choices: Readonly<Record<string, readonly string[]>> = {
  service_tier: ['auto', 'default', 'standard', 'standard_only'],
  speed: ['standard'],
  inference_geo: ['global'],
}

/** Answers per question. With several, servers report the usage of each, or of all together. */
const counts = ['n', 'best_of'] as const

/** Names that are parsed here, and which must be unique and in these letters. */
export const ruledNames: readonly string[] = [...counts, 'modalities', ...Object.keys(choices)]

/** `read` returns the value of one of `ruledNames`. Throws `invalid_request`. */
export function assertServed(read: (name: string) => unknown): void {
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

/** Beta features of Anthropic's API that change only the form or the limits of a plain request. */
const servedBetas = new Set([
  'adaptive-thinking-2026-01-28',
  'advanced-tool-use-2025-11-20',
  'claude-code-20250219',
  'compact-2026-01-12',
  'computer-use-2024-10-22',
  'computer-use-2025-01-24',
  'computer-use-2025-11-24',
  'context-management-2025-06-27',
  'dev-full-thinking-2025-05-14',
  'effort-2025-11-24',
  'extended-cache-ttl-2025-04-11',
  'fine-grained-tool-streaming-2025-05-14',
  'interleaved-thinking-2025-05-14',
  'mid-conversation-system-2026-04-07',
  'model-context-window-exceeded-2025-08-26',
  'output-128k-2025-02-19',
  'pdfs-2024-09-25',
  'prompt-caching-2024-07-31',
  'prompt-caching-scope-2026-01-05',
  'redact-thinking-2026-02-12',
  'search-results-2025-06-09',
  'structured-outputs-2025-11-13',
  'structured-outputs-2025-12-15',
  'task-budgets-2026-03-13',
  'thinking-token-count-2026-05-13',
  'token-efficient-tools-2025-02-19',
  'token-efficient-tools-2026-03-28',
  'tool-examples-2025-10-29',
])

/** Values of the header `openai-beta`. */
export const servedOpenaiBetas = new Set(['responses=experimental'])

/**
 * Features that clients name without need. They are removed without a warning: a longer context at twice the price, tools of the API,
 * credits, and comparisons with earlier requests.
 */
const leftOutBetas = /^(context-1m|fast-mode|advisor-tool|cache-diagnosis|fallback-credit|oauth)-/

export interface Betas {
  /** The header to send, if any is left. */
  served: string | undefined
  /** Removed names that nobody has reviewed. */
  unknown: string[]
}

/** Reads a header `anthropic-beta`. `allowed` are names that the operator adds. */
export function betasOf(header: string | undefined, allowed: ReadonlySet<string> = new Set()): Betas {
  const named = (header ?? '').split(',').map((name) => name.trim())
  const given = named.filter((name) => name !== '')
  const isServed = (name: string) => servedBetas.has(name.toLowerCase()) || allowed.has(name.toLowerCase())
  const served = given.filter(isServed)
  const unknown = given.filter((name) => !isServed(name) && !leftOutBetas.test(name.toLowerCase()))
  return { served: served.length === 0 ? undefined : served.join(','), unknown }
}

function invalid(place: string, what: string): ServiceError {
  return new ServiceError('invalid_request', `${place}: ${what}`)
}
