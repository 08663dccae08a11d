import { sha256 } from '../../lib/secret.ts'
import type { Call } from './route.ts'
import type { StreamCap } from './streams.ts'

type Opened = Pick<Call, 'limits' | 'orgId' | 'request'>

/** Narrow ones first, so that a client is told what it can do something about. */
export function eventStreamCaps({ limits, orgId, request }: Opened, sessionId: string): StreamCap[] {
  const { caller } = request
  // An API key has no cap of its own: its organisation has.
  const token = caller?.sessionId === undefined ? undefined : sha256(caller.apiKey)
  return [
    ...(token === undefined
      ? []
      : [{ of: 'this token', key: `events of token ${token}`, max: limits.eventStreamsPerTokenMax }]),
    // Whose session it is turns out later: whoever asks for that of others takes no place of theirs.
    { of: 'the session', key: `events of ${orgId} ${sessionId}`, max: limits.eventStreamsPerSessionMax },
    { of: 'the organisation', key: `events of ${orgId}`, max: limits.eventStreamsPerOrganisationMax },
    { of: 'the server', key: 'events', max: limits.eventStreamsMax },
  ]
}

/** Of WebSockets to commands and terminals together. */
export function socketCaps({ limits, orgId }: Opened, sandboxId: string): StreamCap[] {
  return [
    // Whose sandbox it is turns out later: whoever asks for that of others takes no place of theirs.
    { of: 'the sandbox', key: `sockets of ${orgId} ${sandboxId}`, max: limits.socketsPerSandboxMax },
    { of: 'the organisation', key: `sockets of ${orgId}`, max: limits.socketsPerOrganisationMax },
  ]
}

export function exportCaps({ limits, orgId }: Opened): StreamCap[] {
  return [{ of: 'the organisation', key: `exports of ${orgId}`, max: limits.exportsPerOrganisationMax }]
}
