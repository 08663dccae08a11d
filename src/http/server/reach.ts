import { randomBytes } from 'node:crypto'
import { isServiceError, ServiceError } from '../../errors.ts'
import type { Creation } from '../../lib/creation.ts'
import { isWithin, type KeyReach } from '../../lib/key-reach.ts'
import { sha256 } from '../../lib/secret.ts'
import type { Call, Route } from './route.ts'

/**
 * What a key with a name prefix may ask for: `call` has ids where `asked` has what the client sent. Returns the call, with a name for what it
 * makes where the client gave none. Throws `not_found` for what is beyond the key, in the words of an unknown one, and `invalid_request` for
 * another name. Other keys reach all of their organisation.
 */
export async function withinReach(
  route: Pick<Route, 'scope' | 'naming' | 'method'>,
  call: Call,
  asked: Call,
): Promise<Call> {
  const reach = call.request.caller?.reach
  if (reach === undefined) return call
  const { id, sessionId, checkpointId, name } = call.params as Partial<Record<string, string>>
  if (id !== undefined) await assertSandbox(call, reach, id, asked.params['id'] ?? id)
  if (sessionId !== undefined) await assertSession(call, reach, sessionId, asked.params['sessionId'] ?? sessionId)
  if (checkpointId !== undefined) await assertCheckpoint(call, reach, checkpointId, asked.params['checkpointId'] ?? '')
  if (name !== undefined) assertNamed(route, reach, name)
  if (typeof call.body !== 'object' || call.body === null || call.body instanceof Uint8Array) return call
  const body = call.body as Record<string, unknown>
  const { checkpoint_id: from, volumes = [], from: volume } = body
  if (typeof from === 'string') await assertCheckpoint(call, reach, from, from)
  for (const mount of Array.isArray(volumes) ? (volumes as { name?: unknown }[]) : []) assertVolume(reach, mount.name)
  if (route.scope === 'volume' && typeof volume === 'string') assertVolume(reach, volume.split('@')[0])
  return { ...call, body: named(route, reach, body, call.creation) }
}

async function assertSandbox(call: Call, reach: KeyReach, id: string, shown: string): Promise<void> {
  if (isWithin(reach, await call.deps.sandboxes.get(call.orgId, id))) return
  throw new ServiceError('not_found', shown === id ? `no sandbox ${shown}` : `no sandbox is named ${shown}`)
}

async function assertSession(call: Call, reach: KeyReach, id: string, shown: string): Promise<void> {
  const { session } = await call.deps.sessions.get(call.orgId, id)
  if (isWithin(reach, session)) return
  throw new ServiceError('not_found', shown === id ? `no session ${shown}` : `no session is named ${shown}`)
}

/** A checkpoint is within as its sandbox is, while that has a record. One of another organisation is left to the handler: it may be public. */
async function assertCheckpoint(call: Call, reach: KeyReach, id: string, shown: string): Promise<void> {
  const { sandboxes } = call.deps
  try {
    const { checkpoint } = await sandboxes.checkpoints.get(call.orgId, id)
    if (isWithin(reach, await sandboxes.get(call.orgId, checkpoint.sandboxId))) return
  } catch (error) {
    if (!isServiceError(error, 'not_found')) throw error
    if (!(await isOwn(call, id))) return
  }
  throw new ServiceError('not_found', `no checkpoint ${shown}`)
}

async function isOwn(call: Call, checkpointId: string): Promise<boolean> {
  return await call.deps.sandboxes.checkpoints.get(call.orgId, checkpointId).then(
    () => true,
    () => false,
  )
}

/** Images are read and started by all; volumes are what they hold. */
function assertNamed({ scope, method }: Pick<Route, 'scope' | 'method'>, reach: KeyReach, name: string): void {
  if (scope === 'volume') assertVolume(reach, name)
  if (scope !== 'image' || method === 'GET' || method === 'HEAD' || name.startsWith(reach.namePrefix)) return
  throw new ServiceError('forbidden', `the key changes only images whose name begins with ${reach.namePrefix}`)
}

function assertVolume({ namePrefix }: KeyReach, name: unknown): void {
  if (typeof name !== 'string' || name.startsWith(namePrefix)) return
  throw new ServiceError('not_found', `no volume ${JSON.stringify(name.slice(0, 80))}`)
}

function named(
  { naming }: Pick<Route, 'naming'>,
  { namePrefix }: KeyReach,
  body: Record<string, unknown>,
  creation: Creation | undefined,
): Record<string, unknown> {
  if (naming === undefined) return body
  const { name } = body
  // A fork of several has no names; they are the key's own.
  if (name === undefined && (naming === 'kept' || body['count'] !== undefined)) return body
  if (name === undefined) return { ...body, name: namePrefix + suffixOf(creation) }
  if (typeof name === 'string' && name.startsWith(namePrefix)) return body
  throw new ServiceError('invalid_request', `name: must begin with ${namePrefix}, as all that this key makes`, {
    details: { field: 'name' },
  })
}

const suffixLength = 12

/** A repeat of the request makes the same. */
function suffixOf(creation: Creation | undefined): string {
  const seed = creation?.secret('name') ?? randomBytes(32).toString('hex')
  return sha256(seed).slice(0, suffixLength)
}
