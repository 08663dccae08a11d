import { ServiceError } from '../../errors.ts'
import type { Scope } from '../../organisation/scopes.ts'
import type { Caller } from './auth.ts'
import type { Route } from './route.ts'

/** Throws `forbidden` for a key that may not use the route at all. */
export function assertRoute(caller: Caller | undefined, { scope, ofAll }: Pick<Route, 'scope' | 'ofAll'>): void {
  assertScope(caller, scope)
  if (ofAll !== true || caller?.reach === undefined) return
  throw new ServiceError('forbidden', 'a key with a name prefix does not reach what the whole organisation has')
}

/** Throws `forbidden` for a key without the scope. Without a caller (a signed URL, a probe) and with a token the route has its own check. */
export function assertScope(caller: Caller | undefined, scope: Route['scope']): void {
  if (scope === 'any' || mayUse(caller, scope)) return
  throw new ServiceError('forbidden', `the API key lacks the scope ${scope}`, { details: { scope } })
}

function mayUse(caller: Caller | undefined, scope: Scope): boolean {
  return caller?.scopes === undefined || caller.scopes.includes(scope)
}
