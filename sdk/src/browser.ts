/** Sandboxes and agent sessions of an Atoll server. `README.md` is the way in. */
export type { AgentConfig, SessionChange } from './agent-config.ts'
export { Atoll, type AtollOptions, type ClientOptions, type Content, type RequestOptions } from './atoll.ts'
export type { AttachOptions } from './attached.ts'
export type { ContextProgress, DockerfileSource } from './build-context.ts'
export { Capsule, Capsules, type ForkCapsuleOptions, type NewCapsule } from './capsules.ts'
export { Checkpoint, type ForkOptions, type PatchOptions } from './checkpoint.ts'
export type { CommandOptions, FollowedResult, RunOptions, SpawnOptions } from './command.ts'
export { OrganisationEgress, SandboxEgress, type EgressLogOptions, type FollowEgressOptions } from './egress.ts'
export type { EgressOptions, EgressPolicy, EgressRule, InlineSecret } from './egress-policy.ts'
export * from './errors.ts'
export type { StreamEvent } from './events.ts'
export {
  type CopyOptions,
  type FileOptions,
  type FilePath,
  Files,
  type MoveOptions,
  type SignOptions,
  type WatchOptions,
} from './files.ts'
export type { Fetch } from './globals.ts'
export {
  DockerfileImage,
  Image,
  type BuildEvent,
  type BuildOptions,
  type DockerfileOptions,
  type NameOptions,
} from './image.ts'
export type { LogOptions } from './log.ts'
export type { WatchMetricsOptions } from './metrics.ts'
export type { WaitForPortOptions } from './ports.ts'
export { Process, type Output } from './process.ts'
export { Audit, type AuditQuery } from './audit.ts'
export { Usage, type UsageQuery } from './usage.ts'
export { type NewWebhook, type WebhookChange, Webhooks } from './webhooks.ts'
export { Keys, type NewKey } from './keys.ts'
export { Organisations, type NewOrganisation, type OrganisationChange } from './organisations.ts'
export { Registries } from './registries.ts'
export { type NewSecretStore, type SecretStoreChange, Secrets, type SetSecretOptions } from './secrets.ts'
export { Sandbox } from './sandbox.ts'
export type * from './sandbox-options.ts'
export {
  Session,
  type AgentEvent,
  type AgentEventOptions,
  type AssistantDraft,
  type CreateSessionOptions,
  type EventOptions,
  type ExportRecord,
  type ListSessionsOptions,
} from './session.ts'
export {
  Timeline,
  type ForkSessionOptions,
  type ForkSessionsOptions,
  type ForkVariant,
  type RewindOptions,
  type SessionFork,
  type SessionPlace,
  type TimelineOptions,
  type TimelinePageOptions,
} from './session-travel.ts'
export { Terminal, type TerminalSize } from './terminal.ts'
export type { CompareOptions, PatchTextOptions } from './trees.ts'
export type { TransferOptions, TransferProgress } from './transfer.ts'
export type * from './types.ts'
export { Volumes, type CreateVolumeOptions, type VolumeMount } from './volumes.ts'
