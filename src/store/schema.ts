import type { ColumnType, Generated, JSONColumnType } from 'kysely'
import type { LogEvent } from '../events/index.ts'
import type { Claim } from '../lib/creation.ts'
import type { AuditHead } from '../organisation/audit/index.ts'
import type { ChainedEntry } from '../protocol/audit.ts'
import type { ApiKey, Organisation } from '../organisation/index.ts'
import type { Image, ImageLayer, RegistryCredential } from '../image/index.ts'
import type { Checkpoint, SandboxConfig } from '../sandbox/checkpoint-records.ts'
import type { Patch } from '../sandbox/patch.ts'
import type { EgressPolicy } from '../sandbox/egress/policy.ts'
import type { EgressEntry } from '../sandbox/ports/egress.ts'
import type { Preview } from '../sandbox/preview.ts'
import type { Sandbox } from '../sandbox/sandbox.ts'
import type { SealedSecret, Store as SecretStore } from '../secret/index.ts'
import type { Volume, VolumeAttachment, VolumeSnapshot } from '../sandbox/volume.ts'
import type { Attempt, Message as WebhookMessage, SealedDestination } from '../webhook/index.ts'
import type {
  AgentConfig,
  Artifact,
  Message,
  PendingRewind,
  Session,
  SessionEvent,
  StreamEvent,
} from '../session/session.ts'
import type { Capsule } from '../session/capsule-store.ts'
import type { Point, Rewind, Turn, TurnFiles } from '../session/turn.ts'

/**
 * The tables as Kysely sees them, in camel case; in the database every name is in snake case (`CamelCasePlugin`).
 * `null` stands for an absent field. JSON columns are read parsed and written as text made by `text.ts`.
 */
export interface Database {
  /** A table of one row. */
  installation: { id: string }
  organisations: OrganisationTable
  apiKeys: ApiKeyTable
  operatorKeys: { keyHash: string; createdAt: Generated<Date> }
  sandboxes: SandboxTable
  checkpoints: CheckpointTable
  /** Checkpoints of which the driver may still have something. */
  deletedCheckpoints: { id: string }
  patches: Patch
  images: ImageTable
  imageLayers: ImageLayer
  registryCredentials: RegistryCredential
  previews: Row<Preview>
  volumes: Row<Volume>
  volumeSnapshots: VolumeSnapshot
  volumeAttachments: VolumeAttachment
  /** Volumes of which the driver may have something although they have no row. */
  volumeRemains: { id: string }
  agentConfigs: AgentConfigTable
  sessions: SessionTable
  messages: MessageTable
  sessionEvents: PositionedTable & SessionEvent
  streamEvents: {
    sessionId: string
    sequence: number
    data: ColumnType<StreamEvent['data'], string, string>
    createdAt: Date
  }
  sessionTurns: TurnTable
  sessionPoints: PointTable
  sessionRewinds: Row<Rewind> & { sessionId: string }
  sessionCapsules: Omit<Row<Capsule>, 'forks'> & { forks: Generated<number>; tokenHash: string }
  idempotencyKeys: IdempotencyKeyTable
  /** The newest number of each organisation. Its row lock orders the commits that write events. */
  eventCounters: { orgId: string; lastNumber: number }
  events: EventTable
  auditEntries: AuditEntryTable
  auditHeads: AuditHead & { orgId: string; toldNumber: Generated<number> }
  secretStores: SecretStoreTable
  secrets: SecretTable
  egressAuthorities: { id: string; orgId: string; certificate: string; sealedKey: string; createdAt: Generated<Date> }
  egressLog: { orgId: string; sandboxId: string; number: number; at: Date; entry: Json<EgressEntry> }
  webhookDestinations: DestinationTable
  webhookCursors: { orgId: string; number: number }
  webhookMessages: WebhookMessageTable
  webhookAttempts: Omit<Row<Attempt>, 'id'> & { id: Generated<number>; destinationId: string }
}

/** A record of the domain as a row: the column of an optional field can be `null`. */
type Row<Fields> = {
  [Key in keyof Fields]-?: undefined extends Fields[Key] ? Exclude<Fields[Key], undefined> | null : Fields[Key]
}

/** Parsed on the way out; on the way in a JSON text. */
type Json<Value extends object> = JSONColumnType<Value>

/** `sandboxId`: the id of a hidden store, which has the secrets of one creation. */
export interface SecretStoreTable extends Omit<SecretStore, 'egressAllowlist'> {
  egressAllowlist: Json<SecretStore['egressAllowlist']>
  sandboxId: ColumnType<string | null, string | undefined, never>
}

export interface SecretTable extends Omit<Row<SealedSecret>, 'allowedHosts' | 'places' | 'sign'> {
  allowedHosts: Json<SealedSecret['allowedHosts']>
  places: Json<SealedSecret['places']>
  sign: ColumnType<NonNullable<SealedSecret['sign']> | null, string | null, string | null>
}

export interface AuditEntryTable extends Omit<ChainedEntry, 'ts' | 'subject'> {
  ts: Date
  subject: Json<ChainedEntry['subject']>
}

export interface DestinationTable extends Omit<Row<SealedDestination>, 'failures' | 'dropped'> {
  failures: Generated<number>
  dropped: Generated<number>
  isDisablingTold: Generated<boolean>
}

interface WebhookMessageTable extends Omit<Row<WebhookMessage>, 'attempts' | 'createdAt'> {
  attempts: Generated<number>
  createdAt: Generated<Date>
}

type EgressColumn = ColumnType<EgressPolicy | null, string | null | undefined, string | null>

interface OrganisationTable extends Omit<Row<Organisation>, 'limits' | 'isDefault' | 'createdAt' | 'egress'> {
  egress: EgressColumn
  limits: ColumnType<Organisation['limits'], string | undefined, string>
  isDefault: Generated<boolean>
  createdAt: Generated<Date>
}

interface ApiKeyTable extends Omit<Row<ApiKey>, 'name' | 'isDefault'> {
  name: Generated<string>
  isDefault: Generated<boolean>
}

export interface SandboxTable extends Omit<
  Row<Sandbox>,
  'envs' | 'metadata' | 'tags' | 'volumes' | 'commandDefaults' | 'egress'
> {
  egress: ColumnType<Sandbox['egress'] | null, string | null | undefined, string | null>
  commandDefaults: ColumnType<Sandbox['commandDefaults'] | null, string | null | undefined, string | null>
  volumes: Json<Sandbox['volumes']>
  envs: Json<Sandbox['envs']>
  metadata: Json<Sandbox['metadata']>
  tags: Json<Sandbox['tags']>
}

export interface CheckpointTable extends Omit<Row<Checkpoint>, 'sandboxConfig' | 'isPublic' | 'volumes'> {
  volumes: Json<Checkpoint['volumes']>
  sandboxConfig: Json<SandboxConfig>
  isPublic: Generated<boolean>
  /** The highest sequence given to a patch so far, deleted ones included. */
  lastPatchSequence: Generated<number>
}

export interface ImageTable extends Omit<
  Row<Image>,
  'manifest' | 'failure' | 'oci' | 'config' | 'egress' | 'sizeBytes'
> {
  egress: EgressColumn
  config: ColumnType<Image['config'] | null, string | null | undefined, string | null>
  oci: ColumnType<Image['oci'] | null, string | null | undefined, string | null>
  manifest: Json<Image['manifest']>
  failure: ColumnType<Image['failure'] | null, string | null, string | null>
}

/** Immutable and shared by sessions with the same configuration: the key is the SHA-256 of the JSON text. */
interface AgentConfigTable {
  hash: string
  /** Without the skills, which can be megabytes and which lists leave out. */
  config: Json<Omit<AgentConfig, 'skills'>>
  skills: Json<AgentConfig['skills']>
}

export interface SessionTable extends Omit<Row<Session>, 'agentConfig' | 'artifacts' | 'pendingRewind'> {
  artifacts: ColumnType<Artifact[], string, string>
  pendingRewind: ColumnType<PendingRewind | null, string | null | undefined, string | null>
  agentConfigHash: string
  /** The number of the newest stream event. */
  lastSequence: Generated<number>
  /** Bytes of the JSON texts of all its stream events. */
  streamBytes: Generated<number>
  /** Bytes of the JSON texts of all its messages and events. */
  historyBytes: Generated<number>
}

interface PositionedTable {
  /** A total order, taken while the session's row is locked. */
  position: Generated<number>
  sessionId: string
}

export interface MessageTable extends PositionedTable, Omit<Row<Message>, 'isLeft'> {
  isLeft: Generated<boolean>
}

export interface TurnTable extends PositionedTable, Omit<Row<Turn>, 'usageBefore' | 'files'> {
  usageBefore: Json<Turn['usageBefore']>
  files: ColumnType<TurnFiles | null, string | undefined, string>
}

export interface PointTable extends PositionedTable, Omit<Row<Point>, 'project'> {
  project: Json<Point['project']>
}

interface IdempotencyKeyTable extends Claim {
  requestHash: string
  /** Ids of what the request has made, written in the transactions that made it. */
  made: Generated<string[]>
  /** `null` until the request is answered. */
  statusCode: number | null
  body: string | null
  headers: ColumnType<Record<string, string> | null, string | null, string | null>
  createdAt: Date
}

export interface EventTable extends Omit<LogEvent, 'sandboxId' | 'sessionId' | 'actor' | 'data'> {
  sandboxId: string | null
  sessionId: string | null
  actorType: LogEvent['actor']['type']
  actorId: string | null
  /** The tags of the sandbox at that time. */
  tags: Json<Record<string, string>> | null
  data: Json<LogEvent['data']>
}
