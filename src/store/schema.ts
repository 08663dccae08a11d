import type { ColumnType, Generated, JSONColumnType } from 'kysely'
import type { Checkpoint, SandboxConfig } from '../sandbox/checkpoint.ts'
import type { Patch } from '../sandbox/patch.ts'
import type { Preview } from '../sandbox/preview.ts'
import type { Sandbox } from '../sandbox/sandbox.ts'
import type { AgentConfig, Artifact, Message, Session, SessionEvent, StreamEvent } from '../session/session.ts'

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
  patches: Row<Patch>
  previews: Row<Preview>
  agentConfigs: AgentConfigTable
  sessions: SessionTable
  messages: MessageTable
  sessionEvents: SessionEventTable
  streamEvents: StreamEventTable
  idempotencyKeys: IdempotencyKeyTable
}

/** A record of the domain as a row: the column of an optional field can be `null`. */
type Row<Fields> = {
  [Key in keyof Fields]-?: undefined extends Fields[Key] ? Exclude<Fields[Key], undefined> | null : Fields[Key]
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

export interface SandboxTable extends Omit<Row<Sandbox>, 'envs' | 'metadata' | 'tags'> {
  hostId: string | null
  envs: Json<Sandbox['envs']>
  metadata: Json<Sandbox['metadata']>
  tags: Json<Sandbox['tags']>
}

export interface CheckpointTable extends Omit<Row<Checkpoint>, 'sandboxConfig'> {
  hostId: string | null
  sandboxConfig: Json<SandboxConfig>
  /** The highest sequence given to a patch so far, deleted ones included. */
  lastPatchSequence: Generated<number>
}

/** Those of which the driver may still have something. */
export interface DeletedCheckpointTable {
  id: string
}

/** Immutable and shared by sessions with the same configuration: the key is the SHA-256 of the JSON text. */
export interface AgentConfigTable {
  hash: string
  /** Without the skills, which can be megabytes and which lists leave out. */
  config: Json<Omit<AgentConfig, 'skills'>>
  skills: Json<AgentConfig['skills']>
}

export interface SessionTable extends Omit<Row<Session>, 'agentConfig' | 'artifacts'> {
  /** The host whose server runs it. */
  hostId: string | null
  artifacts: ColumnType<Artifact[], string, string>
  agentConfigHash: string
  /** The number of the newest stream event. */
  lastSequence: Generated<number>
  /** Of the JSON texts of all its stream events. */
  streamBytes: Generated<number>
  /** Of the JSON texts of all its messages and events. */
  historyBytes: Generated<number>
}

export interface MessageTable extends Row<Message> {
  /** Total order, drawn while the session's row is locked. */
  position: Generated<number>
  sessionId: string
}

export interface SessionEventTable extends Row<SessionEvent> {
  position: Generated<number>
  sessionId: string
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
