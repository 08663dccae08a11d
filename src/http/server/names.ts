import { isServiceError, ServiceError } from '../../errors.ts'
import { namePattern, nameFault } from '../../lib/resource-name.ts'
import type { Call } from './route.ts'

type Kind = 'sandbox' | 'session' | 'checkpoint'

/** What takes a name in place of an id, in every route that has it. In this order: a checkpoint is looked for in the sandbox of its path. */
const inPath: Readonly<Record<string, Kind>> = { id: 'sandbox', sessionId: 'session', checkpointId: 'checkpoint' }
const inQuery: Readonly<Record<string, Kind>> = { sandbox: 'sandbox', session: 'session' }
const inBody: Readonly<Record<string, Kind>> = { checkpoint_id: 'checkpoint' }

/**
 * The call with ids where the request has names. Ids cost nothing: no name looks like one. Throws `not_found` for an unknown name. Without a
 * key (a signed URL) nothing is looked up, and with the token of a session its id alone is taken.
 */
export async function withIds(call: Call): Promise<Call> {
  if (call.orgId === '') return call
  const params = await resolved(call, call.params, inPath)
  const query = await resolved(call, call.query, inQuery)
  const body = await resolved(call, call.body, inBody)
  return { ...call, params: params as Call['params'], query, body }
}

async function resolved(call: Call, given: unknown, kinds: Readonly<Record<string, Kind>>): Promise<unknown> {
  if (typeof given !== 'object' || given === null) return given
  let values = given as Record<string, unknown>
  for (const [field, kind] of Object.entries(kinds)) {
    const value = Object.hasOwn(values, field) ? values[field] : undefined
    if (typeof value !== 'string') continue
    const sandboxId = kinds === inPath ? values['id'] : undefined
    const id = await idOf(call, kind, value, typeof sandboxId === 'string' ? sandboxId : undefined)
    if (id !== value) values = { ...values, [field]: id }
  }
  return values
}

async function idOf(call: Call, kind: Kind, value: string, sandboxId?: string): Promise<string> {
  try {
    return kind === 'checkpoint' ? await checkpointId(call, value, sandboxId) : await plainId(call, kind, value)
  } catch (error) {
    // What an earlier run of the request has made is answered, though the name may be free by now.
    if (isServiceError(error, 'not_found') && (call.creation?.made.length ?? 0) > 0) return value
    throw error
  }
}

async function plainId({ orgId, deps }: Call, kind: 'sandbox' | 'session', value: string): Promise<string> {
  if (nameFault(value) !== undefined) return value
  return await (kind === 'sandbox' ? deps.sandboxes : deps.sessions).idNamed(orgId, value)
}

/** `SANDBOX/NAME`, or in the path of a sandbox the name alone. */
async function checkpointId(call: Call, value: string, inSandbox?: string): Promise<string> {
  const { orgId, deps } = call
  const slash = value.indexOf('/')
  if (slash === -1 && nameFault(value) !== undefined) return value
  const sandboxId = slash === -1 ? inSandbox : await plainId(call, 'sandbox', value.slice(0, slash))
  const name = value.slice(slash + 1)
  if (sandboxId === undefined || !namePattern.test(name)) {
    throw new ServiceError('not_found', `no checkpoint ${value.slice(0, 200)}: a name is given as SANDBOX/NAME`)
  }
  return await deps.sandboxes.checkpoints.idNamed(orgId, sandboxId, name)
}
