/** Of a table whose size is not known or has no limit. */
const tableDefault = 262_144
/** Each look at a count walks all that are counted. */
const sandboxConnectionsMax = 4_096

/** What sandboxes may take of the host's table of connections, by the size of that. */
export interface ConnectionBounds {
  /** Of one sandbox, all told. */
  perSandbox: number
  /** New ones of one sandbox in a second. Those that have ended stay in the table for a while and are counted no more. */
  perSandboxPerSecond: number
  /** Of the sandboxes of one group together, beyond what each has for itself. */
  perGroup: number
  /** New ones of all sandboxes in a second, beyond what each has for itself. */
  perSecond: number
}

/** How many groups there are: sandboxes fall into them by the end of their address. */
export const connectionGroups = 16
/** What each sandbox has for itself, however much the others take. */
export const ownConnections = 32
export const ownConnectionsPerSecond = 2
export const ownConnectionsBurst = 20
/** For how long the table keeps a connection that has ended. */
export const endedSeconds = 10

/**
 * A quarter of the table is for what sandboxes hold open, an eighth for what they have closed, and what they have for
 * themselves comes on top: with a sandbox for every two hundred entries the host keeps a quarter in any case.
 */
export function connectionBounds(tableMax: number | undefined): ConnectionBounds {
  const size = tableMax === undefined || tableMax === 0 ? tableDefault : tableMax
  const part = (divisor: number) => Math.max(1, Math.floor(size / divisor))
  const perGroup = part(4 * connectionGroups)
  const perSecond = part(8 * endedSeconds)
  return {
    // One sandbox leaves the others of its group half of it, and 31 have to do their worst to take all there is.
    perSandbox: Math.min(sandboxConnectionsMax, part(8 * connectionGroups)),
    perSandboxPerSecond: Math.max(1, Math.floor(perSecond / connectionGroups)),
    perGroup,
    perSecond,
  }
}
