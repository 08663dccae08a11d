import { ServiceError } from '../errors.ts'
import type { LogEventType } from '../events/index.ts'

/** Types that exist for clients of other servers, or that nobody is called for. */
const never: ReadonlySet<string> = new Set(['sandbox.migrated'])

/** Throws `invalid_request` for a filter that is neither a type nor `prefix.*` of at least one. */
export function assertFilter(
  eventTypes: readonly string[],
  known: readonly LogEventType[],
  field = 'eventTypes',
): void {
  const wrong = eventTypes.find((filter) => !known.some((type) => matchesOne(filter, type)))
  if (wrong === undefined) return
  const message = `${field}: ${JSON.stringify(wrong.slice(0, 100))} is no type of an event, nor a prefix with .* of one`
  throw new ServiceError('invalid_request', message, { details: { field } })
}

export function matches(eventTypes: readonly string[], type: string): boolean {
  return eventTypes.length === 0 || eventTypes.some((filter) => matchesOne(filter, type))
}

/** The type that a test is of. */
export function firstOf(eventTypes: readonly string[], known: readonly LogEventType[]): LogEventType {
  return (
    known.find((type) => !never.has(type) && eventTypes.length > 0 && matches(eventTypes, type)) ?? 'sandbox.created'
  )
}

function matchesOne(filter: string, type: string): boolean {
  if (filter === type) return true
  return filter.length > 2 && filter.endsWith('.*') && type.startsWith(filter.slice(0, -1))
}
