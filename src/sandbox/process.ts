import { ServiceError } from '../errors.ts'
import { newId } from '../lib/id.ts'
import { defined } from '../lib/defined.ts'
import type { Guest, ProcessInfo, ProcessOutput, SpawnRequest } from './ports/guest.ts'

/**
 * An exec session or a terminal of a client, a process that an image has started, or an internal one such as an agent or a patch. The prefix of
 * a process id tells its kind.
 */
export type ProcessKind = 'exec' | 'pty' | 'image' | 'internal'

export function processKind(processId: string): ProcessKind {
  if (processId.startsWith('es-')) return 'exec'
  if (processId.startsWith('ps-')) return 'pty'
  return processId.startsWith('im-') ? 'image' : 'internal'
}

/** Whether clients start processes of this kind. These count as activity, and start with the defaults of the image. */
export function isOfClient(kind: ProcessKind): boolean {
  return kind === 'exec' || kind === 'pty'
}

export function newInternalProcessId(): string {
  return newId('ag-')
}

/** Throws `not_found` for the id of another kind, as for an unknown id. */
export function assertKind(processId: string, kind: ProcessKind): void {
  if (processKind(processId) === kind) return
  const noun = { exec: 'exec session', pty: 'PTY session', image: 'process of an image', internal: 'internal process' }[
    kind
  ]
  throw new ServiceError('not_found', `no ${noun} ${processId}`)
}

/** The last activity of client processes: infinity while one runs, 0 when none is known. Processes of other kinds do not count. */
export function clientsActiveAtMs(processes: readonly ProcessInfo[]): number {
  const ofClients = processes.filter((process) => isOfClient(processKind(process.id)))
  if (ofClients.some((process) => process.running)) return Infinity
  // The guest reports ends in whole seconds.
  const ends = ofClients.map((process) => Date.parse(process.endedAt ?? '') + 1000).filter(Number.isFinite)
  return Math.max(0, ...ends)
}

const waitMs = 60_000

/** Outputs up to this size never wait: a connection's own buffers take them, however slowly its client reads. */
export const smallBytesMax = 64 * 1024

/** Runs a process to its end and releases it. An abort, or an error, kills it. `output` reads an output that is not small. */
export async function runToEnd(
  guest: Guest,
  request: SpawnRequest,
  signal: AbortSignal | undefined,
  output: () => Promise<ProcessOutput>,
): Promise<{ exitCode: number; timedOut?: boolean; output: ProcessOutput }> {
  const { id } = request
  let isReleased = false
  try {
    const run = await guest.run(request, { waitMs, bytesMax: smallBytesMax, signal })
    isReleased = run.output !== undefined
    let { process } = run
    while (process.running) process = await guest.process(id, waitMs, signal)
    const { exitCode = 0, timedOut } = process
    return { exitCode, ...defined({ timedOut }), output: run.output ?? (await output()) }
  } finally {
    if (!isReleased) await guest.release(id).catch(() => undefined)
  }
}
