import { newId } from '../lib/id.ts'
import type { ProcessInfo } from './guest.ts'

/** Exec sessions and PTYs of clients count as activity; internal processes such as an agent do not. */
export function isClientProcess(processId: string): boolean {
  return processId.startsWith('es-') || processId.startsWith('ps-')
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
