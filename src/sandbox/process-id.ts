import { ServiceError } from '../errors.ts'
import { newId } from '../lib/id.ts'
import type { ProcessInfo } from './ports/guest.ts'

/** What a process is to clients: an exec session, a terminal, or none of theirs, such as an agent or a patch. Its id tells. */
export type ProcessKind = 'exec' | 'pty' | 'internal'

export function processKind(processId: string): ProcessKind {
  if (processId.startsWith('es-')) return 'exec'
  return processId.startsWith('ps-') ? 'pty' : 'internal'
}

/** Throws `not_found` for the id of another kind, as for one that nobody knows. */
export function demandKind(processId: string, kind: ProcessKind): void {
  if (processKind(processId) === kind) return
  const noun = { exec: 'exec session', pty: 'PTY session', internal: 'internal process' }[kind]
  throw new ServiceError('not_found', `no ${noun} ${processId}`)
}

/** Exec sessions and PTYs of clients count as activity; internal processes do not. */
export function isClientProcess(processId: string): boolean {
  return processKind(processId) !== 'internal'
}

/** When a process of a client last was activity: infinity while one runs, 0 where none is known. */
export function clientsActiveAtMs(processes: readonly ProcessInfo[]): number {
  const ofClients = processes.filter((process) => isClientProcess(process.id))
  if (ofClients.some((process) => process.running)) return Infinity
  // Ends are told in whole seconds.
  const ends = ofClients.map((process) => Date.parse(process.endedAt ?? '') + 1000).filter(Number.isFinite)
  return Math.max(0, ...ends)
}

export function newInternalProcessId(): string {
  return newId('ag-')
}
