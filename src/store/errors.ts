import { ServiceError } from '../errors.ts'
import type { Calls } from './index.ts'

/** What a violated constraint means to a person, by its name in the migrations. */
const conflicts: Record<string, string> = {
  organisations_pkey: 'an organisation with this id exists already',
  api_keys_pkey: 'an API key with this id exists already',
  api_keys_key_hash: 'this API key belongs to another organisation',
  sandboxes_pkey: 'a sandbox with this id exists already',
  checkpoints_pkey: 'a checkpoint with this id exists already',
  checkpoints_name: 'the sandbox has a checkpoint with this name already',
  patches_pkey: 'a patch with this id exists already',
  previews_pkey: 'a preview with this id exists already',
  previews_own_hostname: 'this domain is taken by another preview',
  previews_verified_hostname: 'this domain is taken by another preview',
  sessions_pkey: 'a session with this id exists already',
  sessions_gateway_token: 'a session with this gateway token exists already',
  messages_pkey: 'a message with this id exists already',
  session_events_pkey: 'an event with this id exists already',
}

/** Network faults of `pg`, as Node names them. */
const unreachable = new Set(['ECONNREFUSED', 'ECONNRESET', 'ENOTFOUND', 'ETIMEDOUT', 'EPIPE', 'EHOSTUNREACH', 'ENOENT'])

/**
 * The domain's error for a database's, by SQLSTATE (PostgreSQL manual, appendix A), which both drivers report as `code`.
 * What has no meaning to a client comes back as it is and ends as `internal_error`.
 */
export function translated(error: unknown): unknown {
  if (error instanceof ServiceError || !(error instanceof Error)) return error
  const { code, constraint } = error as { code?: unknown; constraint?: unknown }
  const state = typeof code === 'string' ? code : ''
  const name = typeof constraint === 'string' ? constraint : ''
  switch (state) {
    case '23505':
      return new ServiceError('conflict', conflicts[name] ?? 'this exists already', {
        cause: error,
      })
    case '23503':
      if (name !== 'previews_sandbox') return error
      return new ServiceError('not_found', 'the sandbox does not exist', { cause: error })
    case '22021':
    case '22P05':
      return new ServiceError('invalid_request', 'text must not contain NUL characters', {
        cause: error,
      })
    case '22003':
      return new ServiceError('invalid_request', 'a number is out of range', { cause: error })
    default:
      if (isUnavailable(state, error)) {
        return new ServiceError('unavailable', 'the database does not answer', { cause: error })
      }
      return error
  }
}

/** What `pg` and Kysely say without a code, also when the store was closed while a request ran. */
const lostConnection = new RegExp(
  '^(?:Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client .* is not queryable' +
    '|Cannot use a pool after|Postgres connection has been discarded|driver has already been destroyed)',
)

/** Connection faults (08), shutdowns and timeouts (57), too many connections or a full disk (53), and pg's own time limits. */
function isUnavailable(state: string, error: Error): boolean {
  if (/^(?:08|57|53)...$/.test(state) || unreachable.has(state)) return true
  return lostConnection.test(error.message)
}

export function rethrowTranslated(error: unknown): never {
  throw translated(error)
}

/** The same object, whose methods are counted as calls and throw {@link translated} errors. */
export function translating<Port extends object>(port: Port, calls: Calls): Port {
  return new Proxy(port, {
    get(target, key, receiver): unknown {
      const value: unknown = Reflect.get(target, key, receiver)
      if (typeof value !== 'function') return value
      return async (...parameters: unknown[]): Promise<unknown> => {
        try {
          return await calls.run(() => Reflect.apply(value, target, parameters) as Promise<unknown>)
        } catch (error) {
          throw translated(error)
        }
      }
    },
  })
}
