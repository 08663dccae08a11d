import type { ColumnType, Generated, JSONColumnType } from 'kysely'
import type { ErrorCode } from '../errors.ts'
import type { CheckpointStatus, SandboxConfig } from '../sandbox/checkpoint.ts'
import type { CheckpointKind } from '../sandbox/ports/runtime-driver.ts'
import type { PatchStrategy } from '../sandbox/patch.ts'
import type { SslStatus } from '../sandbox/preview.ts'
import type { SandboxReason, SandboxStatus } from '../sandbox/sandbox.ts'
import type {
  AgentConfig,
  Artifact,
  MessageRole,
  MessageState,
  SessionActivity,
  SessionEvent,
  SessionStatus,
  StreamEvent,
} from '../session/session.ts'

/**
 * The tables as Kysely sees them, in camel case; in the database every name is in snake case (`CamelCasePlugin`).
 * `null` stands for an absent field. JSON columns are read parsed and written as text made by `text.ts`.
 */
export interface Database {
  installation: InstallationTable
  organisations: OrganisationTable
  apiKeys: ApiKeyTable
  sandboxes: SandboxTable
  checkpoints: CheckpointTable
  deletedCheckpoints: DeletedCheckpointTable
  patches: PatchTable
  previews: PreviewTable
  agentConfigs: AgentConfigTable
  sessions: SessionTable
  messages: MessageTable
  sessionEvents: SessionEventTable
  streamEvents: StreamEventTable
  idempotencyKeys: IdempotencyKeyTable
}

/** Parsed on the way out; on the way in a JSON text. */
type Json<Value extends object> = JSONColumnType<Value>
type NullableJson<Value extends object> = ColumnType<Value | null, string | null, string | null>

/** One row. */
export interface InstallationTable {
  id: string
}

export interface OrganisationTable {
  id: string
  name: string
  isDefault: Generated<boolean>
  createdAt: Generated<Date>
}

export interface ApiKeyTable {
  id: string
  orgId: string
  keyHash: string
  createdAt: Date
}

export interface SandboxTable {
  id: string
  orgId: string
  hostId: string | null
  status: SandboxStatus
  reason: SandboxReason | null
  reasonMessage: string | null
  image: string
  cpuCount: number
  memoryMb: number
  diskMb: number
  timeoutSeconds: number
  envs: Json<Record<string, string>>
  metadata: Json<Record<string, string>>
  tags: Json<Record<string, string>>
  tagsUpdatedAt: Date | null
  fromCheckpointId: string | null
  previewTokenHash: string | null
  createdAt: Date
  startedAt: Date
  activeAt: Date
  stoppedAt: Date | null
  restores: number
}

export interface CheckpointTable {
  id: string
  orgId: string
  hostId: string | null
  sandboxId: string
  name: string
  kind: CheckpointKind
  status: CheckpointStatus
  sizeBytes: number
  sandboxConfig: Json<SandboxConfig>
  error: string | null
  /** The highest sequence given to a patch so far, deleted ones included. */
  lastPatchSequence: Generated<number>
  createdAt: Date
}

/** Those of which the driver may still have something. */
export interface DeletedCheckpointTable {
  id: string
}

export interface PatchTable {
  id: string
  checkpointId: string
  script: string
  description: string
  strategy: PatchStrategy
  sequence: number
  createdAt: Date
}

export interface PreviewTable {
  id: string
  orgId: string
  sandboxId: string
  port: number
  customHostname: string | null
  verifiedAt: Date | null
  sslStatus: SslStatus
  authScheme: 'bearer' | null
  tokenHash: string | null
  createdAt: Date
}

/** Immutable and shared by sessions with the same configuration: the key is the SHA-256 of the JSON text. */
export interface AgentConfigTable {
  hash: string
  /** Without the skills, which can be megabytes and which lists leave out. */
  config: Json<Omit<AgentConfig, 'skills'>>
  skills: Json<AgentConfig['skills']>
}

export interface SessionTable {
  id: string
  orgId: string
  /** The host whose server runs it. */
  hostId: string | null
  userId: string
  userEmail: string | null
  userName: string | null
  status: SessionStatus
  activity: SessionActivity
  sandboxId: string
  title: string
  framework: string
  artifacts: ColumnType<Artifact[], string, string>
  agentConfigHash: string
  checkpointId: string | null
  forkedFrom: string | null
  forkCheckpointOf: string | null
  gatewayTokenHash: string
  agentProcessId: string | null
  agentOffset: number
  interruptedMessageId: string | null
  waitingFor: ErrorCode | null
  waitingSince: Date | null
  sandboxRestores: number
  inputTokens: number
  cacheReadTokens: number
  cacheWriteTokens: number
  outputTokens: number
  costNanoUsd: number | null
  /** The number of the newest stream event. */
  lastSequence: Generated<number>
  /** Of the JSON texts of all its stream events. */
  streamBytes: Generated<number>
  /** Of the JSON texts of all its messages and events. */
  historyBytes: Generated<number>
  createdAt: Date
  updatedAt: Date
}

export interface MessageTable {
  /** Total order, drawn while the session's row is locked. */
  position: Generated<number>
  id: string
  sessionId: string
  role: MessageRole
  content: string
  state: MessageState | null
  createdAt: Date
}

export interface SessionEventTable {
  position: Generated<number>
  id: string
  sessionId: string
  type: SessionEvent['type']
  level: SessionEvent['level']
  message: string
  createdAt: Date
}

export interface StreamEventTable {
  sessionId: string
  sequence: number
  data: ColumnType<StreamEvent['data'], string, string>
  createdAt: Date
}

export interface IdempotencyKeyTable {
  orgId: string
  key: string
  requestHash: string
  /** Sealed with the caller's key; another one in each life of the key. */
  seed: string
  /** Ids of what the request has made, written in the transactions that made it. */
  made: Generated<string[]>
  /** `null` until the request is answered. */
  statusCode: number | null
  body: string | null
  headers: NullableJson<Record<string, string>>
  createdAt: Date
}
