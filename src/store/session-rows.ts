import type { Selectable } from 'kysely'
import type { AgentConfig, Session } from '../session/session.ts'
import { present } from './rows.ts'
import type { SessionTable } from './schema.ts'

type SizeColumn = 'lastSequence' | 'streamBytes' | 'historyBytes'
type HeadColumn = Exclude<keyof SessionTable, 'artifacts' | 'agentConfigHash' | SizeColumn>

export type HeadRow = Pick<Selectable<SessionTable>, HeadColumn>
export type ShortRow = HeadRow & Pick<Selectable<SessionTable>, 'artifacts' | 'agentConfigHash'>

/**
 * The small columns of a session: its artifacts and its configuration can be thousands of times larger. A record, so a missing column
 * does not compile.
 */
const head: Record<HeadColumn, true> = {
  id: true,
  orgId: true,
  hostId: true,
  keyId: true,
  name: true,
  userId: true,
  userEmail: true,
  userName: true,
  status: true,
  activity: true,
  sandboxId: true,
  title: true,
  framework: true,
  checkpointId: true,
  forkedFrom: true,
  forkCheckpointOf: true,
  gatewayTokenHash: true,
  agentProcessId: true,
  agentOffset: true,
  interruptedMessageId: true,
  sandboxRestores: true,
  waitingFor: true,
  waitingSince: true,
  headTurnId: true,
  unsavedTurnId: true,
  pendingRewind: true,
  pausedFor: true,
  archivedFor: true,
  forkPoint: true,
  inputTokens: true,
  cacheReadTokens: true,
  cacheWriteTokens: true,
  outputTokens: true,
  costNanoUsd: true,
  createdAt: true,
  updatedAt: true,
}

export const headColumns = Object.keys(head) as HeadColumn[]
export const sizeColumns = ['lastSequence', 'streamBytes', 'historyBytes'] as const satisfies SizeColumn[]

/** The columns of a session whose configuration is read separately. */
export const shortColumns = [...headColumns, 'artifacts', 'agentConfigHash'] as const

export function sessionOf(row: HeadRow): Omit<Session, 'agentConfig' | 'artifacts'> {
  return present(row)
}

/** `agentConfig` is the configuration of the row's hash. */
export function toSession(
  { agentConfigHash: _hash, artifacts, ...row }: ShortRow,
  agentConfig: AgentConfig | undefined,
): Session {
  if (agentConfig === undefined) throw new Error(`session ${row.id} has no agent configuration`)
  return { ...sessionOf(row), artifacts, agentConfig }
}
