import { randomBytes } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { acting, whoActs } from '../../events/index.ts'
import { statusOf } from '../../lib/error-status.ts'
import { actorOf, type Audit, type NewAuditEntry, redactText, redactValue } from '../../organisation/audit/index.ts'
import { actingOf, type Caller } from './auth.ts'
import { asServiceError } from './errors.ts'
import type { Call, Route } from './route.ts'

/** Fields of bodies and queries that say what a call is about. No content of files and messages, and of environments the names alone. */
const told: ReadonlySet<string> = new Set([
  ...[
    'name',
    'path',
    'pathBase64',
    'from',
    'to',
    'cmd',
    'args',
    'cwd',
    'user',
    'shell',
    'port',
    'domain',
    'scopes',
    'limits',
  ],
  ...[
    'namePrefix',
    'expiresAt',
    'sandboxesMax',
    'reason',
    'url',
    'eventTypes',
    'enabled',
    'rotateSecret',
    'memoryMB',
    'cpuPercent',
  ],
  ...[
    'diskMB',
    'cpuCount',
    'sizeMB',
    'timeout',
    'onIdle',
    'maxAgeSeconds',
    'kind',
    'checkpoint_id',
    'event_id',
    'expires_in',
    'snapshot',
    'templateID',
    'count',
  ],
  ...[
    'tag',
    'reference',
    'replace',
    'username',
    'user_id',
    'scope',
    'signal',
    'minMemoryMB',
    'maxMemoryMB',
    'locked',
    'volumes',
  ],
  ...['egressAllowlist', 'allowedHosts', 'isDefault', 'placeholder'],
  ...['expiresInSeconds', 'payload', 'sandboxId', 'mode', 'overwrite', 'description', 'strategy', 'retentionPolicy'],
])

/** Whether calls of a route are in the audit: those that change something or act inside of a sandbox, and reads that it names. */
export function isAudited({ method, audited, auth }: Pick<Route, 'method' | 'audited' | 'auth'>): boolean {
  if (auth === 'none' || auth === 'probe') return false
  return audited ?? (method !== 'GET' && method !== 'HEAD')
}

/**
 * Writes that a call is let in, before anything of it is done. Returns what writes its failure. Throws, and the call is refused, when the audit
 * cannot be written.
 */
export async function auditCall(audit: Audit, route: Route, call: Call): Promise<(error: unknown) => void> {
  if (!isAudited(route)) return () => undefined
  const entries = entriesOf(route, call.request, call, null)
  await audit.record(...entries)
  return (error) => audit.note(...entries.map((entry) => ({ ...entry, ts: new Date(), status: statusOfError(error) })))
}

/** Writes that a browser begins or ends a session of a key. Throws when the audit cannot be written. */
export async function auditSession(
  audit: Audit,
  operation: 'signIn' | 'signOut',
  request: FastifyRequest,
  caller: Caller,
): Promise<void> {
  // The call needs no key. From here on it is that of the key's holder.
  request.caller = caller
  const route = { id: operation, path: '' }
  const about = { orgId: caller.organisation.id, params: {}, query: {}, body: undefined }
  await audit.record(...acting(actingOf(caller), () => entriesOf(route, request, about, null)))
}

/** A call that a known key was not allowed, for its scope or its end. */
export function auditRefusal(
  audit: Audit,
  route: Route,
  request: FastifyRequest,
  caller: Caller,
  error: unknown,
): void {
  const params = request.params as Record<string, string>
  const orgId = caller.organisation.id
  const as = { orgId, params, query: {}, body: undefined }
  audit.note(...acting(actingOf(caller), () => entriesOf(route, request, as, statusOfError(error))))
}

function entriesOf(
  { id: operation, path }: Pick<Route, 'id' | 'path'>,
  request: FastifyRequest,
  { orgId, params, query, body }: Pick<Call, 'orgId' | 'params' | 'query' | 'body'>,
  status: number | null,
): NewAuditEntry[] {
  const entry = {
    ...actorOf(whoActs()),
    ...{ ts: new Date(), address: request.ip, operation, request: requestId(request), status },
    subject: subjectOf(params, query, body),
  }
  // What the operator does to an organisation is in the chains of both.
  const { orgId: about } = params as { orgId?: string }
  const isOperators = request.caller?.isOperator === true
  const chains = isOperators
    ? ['', ...(path.startsWith('/api/orgs/:orgId') && about !== undefined ? [about] : [])]
    : [orgId]
  return chains.map((chain) => ({ ...entry, orgId: chain }))
}

const ids = new WeakMap<FastifyRequest, string>()

function requestId(request: FastifyRequest): string {
  const known = ids.get(request)
  if (known !== undefined) return known
  const id = randomBytes(8).toString('hex')
  ids.set(request, id)
  return id
}

function subjectOf(params: object, query: unknown, body: unknown): Record<string, unknown> {
  const subject: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(params))
    if (typeof value === 'string' && name !== 'token') subject[name] = redactText(value)
  for (const given of [query, body]) {
    if (typeof given !== 'object' || given === null || given instanceof Uint8Array) continue
    for (const [name, value] of Object.entries(given)) {
      if (told.has(name) && value !== undefined && value !== null) subject[name] = redactValue(value)
    }
    const { envs } = given as { envs?: unknown }
    if (typeof envs === 'object' && envs !== null) subject['envNames'] = Object.keys(envs).slice(0, 64).map(redactText)
  }
  return subject
}

function statusOfError(error: unknown): number {
  return statusOf[asServiceError(error).code]
}
