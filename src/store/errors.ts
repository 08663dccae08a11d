import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'

/** The message of a violated constraint, by the name that the migrations give it. */
const conflicts: Record<string, string> = {
  organisations_pkey: 'an organisation with this id exists already',
  api_keys_pkey: 'an API key with this id exists already',
  api_keys_key_hash: 'this API key belongs to another organisation',
  sandboxes_pkey: 'a sandbox with this id exists already',
  sandboxes_name: 'name is that of another sandbox',
  checkpoints_pkey: 'a checkpoint with this id exists already',
  checkpoints_name: 'the sandbox has a checkpoint with this name already',
  patches_pkey: 'a patch with this id exists already',
  images_pkey: 'an image with this id exists already',
  images_name: 'there is an image with this name already',
  previews_pkey: 'a preview with this id exists already',
  previews_own_hostname: 'this domain is taken by another preview',
  previews_verified_hostname: 'this domain is taken by another preview',
  volumes_pkey: 'a volume with this id exists already',
  volumes_name: 'the organisation has a volume with this name already',
  volume_snapshots_pkey: 'a snapshot with this id exists already',
  volume_snapshots_name: 'the volume has a snapshot with this name already',
  volume_attachments_pkey: 'the sandbox has this volume already',
  volume_attachments_writer: 'another sandbox writes this volume',
  secret_stores_name: 'the organisation has a secret store with this name already',
  secrets_name: 'the store has a secret with this name already',
  sessions_pkey: 'a session with this id exists already',
  sessions_name: 'name is that of another session',
  sessions_gateway_token: 'a session with this gateway token exists already',
  messages_pkey: 'a message with this id exists already',
  session_events_pkey: 'an event with this id exists already',
  session_turns_pkey: 'the message has had its turn already',
  session_points_pkey: 'a session has kept this checkpoint already',
  session_capsules_pkey: 'a capsule with this id exists already',
  session_capsules_token: 'a capsule with this token exists already',
  session_rewinds_pkey: 'the session has gone back with this event already',
}

/** Constraints on a field of the request, which the error names. */
const fieldOf: Record<string, string> = {
  ...{ sandboxes_name: 'name', sessions_name: 'name', checkpoints_name: 'name', secret_stores_name: 'name' },
}

/** Node's codes of network failures of `pg`. */
const unreachable = new Set(['ECONNREFUSED', 'ECONNRESET', 'ENOTFOUND', 'ETIMEDOUT', 'EPIPE', 'EHOSTUNREACH', 'ENOENT'])

const dataCorrupted = 'XX001'
const indexCorrupted = 'XX002'

/** Whether PostgreSQL has found a file of its own damaged, such as a page whose checksum is wrong. */
export function isDamage(error: unknown): boolean {
  const { code } = error as { code?: unknown }
  return code === dataCorrupted || code === indexCorrupted
}

/**
 * Maps an error of the database to a `ServiceError` by its SQLSTATE (PostgreSQL manual, appendix A), which both drivers report as
 * `code`. An error without a meaning for clients is returned as it is and becomes `internal_error`.
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
        details: defined({ field: fieldOf[name] }),
      })
    case '23503':
      if (name === 'volume_snapshots_volume' || name === 'volume_attachments_volume') {
        return new ServiceError('conflict', 'the volume is in use, or gone', { cause: error })
      }
      if (name !== 'previews_sandbox') return error
      return new ServiceError('not_found', 'the sandbox does not exist', { cause: error })
    case '22021':
    case '22P05':
      return new ServiceError('invalid_request', 'text must not contain NUL characters', { cause: error })
    case '22003':
      return new ServiceError('invalid_request', 'a number is out of range', { cause: error })
    case '53100':
      return new ServiceError('unavailable', 'the disk of the database is full', { cause: error })
    case '57014':
      return new ServiceError('unavailable', 'a statement of the database took longer than it may', { cause: error })
    case dataCorrupted:
    case indexCorrupted:
      return new ServiceError('unavailable', 'a file of the database is damaged', { cause: error })
    default:
      if (isUnavailable(state, error)) {
        return new ServiceError('unavailable', 'the database does not answer', { cause: error })
      }
      return error
  }
}

/** Messages of `pg` and Kysely that carry no code, also when the store was closed during a request. */
const lostConnection = new RegExp(
  '^(?:Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client .* is not queryable' +
    '|Cannot use a pool after|Postgres connection has been discarded|driver has already been destroyed)',
)

/** Connection failures (08), shutdowns and timeouts (57), too many connections or a full disk (53), and pg's own timeouts. */
function isUnavailable(state: string, error: Error): boolean {
  if (/^(?:08|57|53)...$/.test(state) || unreachable.has(state)) return true
  return lostConnection.test(error.message)
}

export function rethrowTranslated(error: unknown): never {
  throw translated(error)
}
