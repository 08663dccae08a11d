import type { Selectable } from 'kysely'
import type { AgentConfig, Session } from '../session/session.ts'
import { present } from './rows.ts'
import type { SessionTable } from './schema.ts'

/** All small columns that make a session: its artifacts and its configuration can take thousands of times as much. */
export const headColumns = [
  'id',
  'orgId',
  'userId',
  'userEmail',
  'userName',
  'status',
  'activity',
  'sandboxId',
  'title',
  'framework',
  'checkpointId',
  'forkedFrom',
  'forkCheckpointOf',
  'gatewayTokenHash',
  'agentProcessId',
  'agentOffset',
  'interruptedMessageId',
  'inputTokens',
  'outputTokens',
  'createdAt',
  'updatedAt',
] as const satisfies readonly (keyof SessionTable)[]

export const sizeColumns = [
  'lastSequence',
  'streamBytes',
  'historyBytes',
] as const satisfies readonly (keyof SessionTable)[]

/** What a session is made of when its configuration is read beside it. */
export const shortColumns = [...headColumns, 'artifacts', 'agentConfigHash'] as const

export type ShortRow = Pick<Selectable<SessionTable>, (typeof shortColumns)[number]>
export type HeadRow = Pick<Selectable<SessionTable>, (typeof headColumns)[number]>

export function sessionOf(row: HeadRow): Omit<Session, 'agentConfig' | 'artifacts'> {
  return present(row)
}

/** `agentConfig` is what goes with the row's hash. */
export function toSession(
  { agentConfigHash: _hash, artifacts, ...row }: ShortRow,
  agentConfig: AgentConfig | undefined,
): Session {
  if (agentConfig === undefined) throw new Error(`session ${row.id} has no agent configuration`)
  return { ...sessionOf(row), artifacts, agentConfig }
}
