/** The objects of the API under the names that its reference has. */
import type { components } from './api.ts'

type Schemas = components['schemas']

/** A sandbox as the server reports it. Times are ISO 8601 in UTC, `timeout` is its idle timeout in seconds. */
export type SandboxInfo = Schemas['Sandbox']
export type SandboxStatus = SandboxInfo['status']
/** Usage of a sandbox, now and in the last hour. */
export type SandboxMetrics = Schemas['SandboxMetrics']
/** What a sandbox used at a time, as `watchMetrics` tells it. */
export type MetricsSample = Schemas['MetricsSample']
export type Scaled = Schemas['Scaled']
export type Limits = Schemas['Limits']
export type Autoscale = Schemas['Autoscale']
export type ScalingLock = Schemas['ScalingLock']
export type StartResult = Schemas['StartResult']
export type CheckpointInfo = Schemas['Checkpoint']
/** With its owner, and what makes use of it. */
export type ListedCheckpointInfo = Schemas['ListedCheckpoint']
export type CheckpointKind = CheckpointInfo['kind']
/** What a checkpoint was made for. */
export type CheckpointOrigin = CheckpointInfo['origin']
/** All that has the same beginning as a sandbox. */
export type SandboxTree = Schemas['SandboxTree']
export type SandboxTreeNode = Schemas['SandboxTreeNode']
/** How the files of two disks differ. */
export type DiskComparison = Schemas['DiskComparison']
export type ComparedFile = Schemas['ComparedFile']
export type PatchInfo = Schemas['Patch']
export type VolumeInfo = Schemas['Volume']
/** A volume, what it holds, and the sandboxes that have it mounted. */
export type VolumeDetails = Schemas['VolumeDetails']
export type VolumeSnapshotInfo = Schemas['VolumeSnapshot']
export type PreviewInfo = Schemas['Preview']
/** A URL that opens a preview in a browser. */
export type PreviewVisit = Schemas['PreviewVisit']
export type DirectoryEntry = Schemas['DirectoryEntry']
/** A file, directory or link. */
export type FileInfo = Schemas['FileInfo']
/** What `files.watch` tells. */
export type FileChange = Schemas['FileChange']
/** The machine of the server. */
export type HostInfo = Schemas['Host']
export type Quarantine = Schemas['Quarantine']
/** Whose API key is used. */
export type Whoami = Schemas['Whoami']
/** An image that is built from steps. */
export type ImageInfo = Schemas['Image']
/** Steps and options of an image to build. */
export type ImageManifest = Schemas['ImageManifest']
/** An image with a name, of this organisation or for all. */
export type PushedImageInfo = Schemas['PushedImage']
export type RegistryInfo = Schemas['Registry']
export type OrganisationInfo = Schemas['Organisation']
export type OrganisationLimits = Schemas['OrganisationLimits']
export type AuditEntryInfo = Schemas['AuditEntry']
export type AuditHeadInfo = Schemas['AuditHead']
export type SecretStoreInfo = Schemas['SecretStore']
/** A secret without its value. */
export type SecretInfo = Schemas['Secret']
export type SecretSetInfo = Schemas['SecretSet']
export type SecretsKeyRotatedInfo = Schemas['SecretsKeyRotated']
/** What a sandbox may reach: its state, its layers, and its secrets without values. */
export type EgressInfo = Schemas['Egress']
/** A policy in the form in which it is compared. */
export type EgressPolicyInfo = NonNullable<EgressInfo['policy']>
/** A connection, request or name that a sandbox asked for. */
export type EgressEntryInfo = Schemas['EgressEntry']
export type OrganisationEgressSetInfo = Schemas['OrganisationEgressSet']
export type WebhookInfo = Schemas['Webhook']
export type WebhookWithSecret = Schemas['WebhookWithSecret']
export type WebhookDeliveryInfo = Schemas['WebhookDelivery']
export type WebhookMessageInfo = Schemas['WebhookMessage']
export type UsageInfo = Schemas['Usage']
export type SandboxUsageInfo = Schemas['SandboxUsage']
export type OwnLimits = Schemas['OwnLimits']
export type KeyInfo = Schemas['ApiKey']
export type CreatedKeyInfo = Schemas['CreatedApiKey']
export type TemplateInfo = Schemas['Template']
export type SignedUrl = Schemas['SignedUrl']
export type RunResult = Schemas['RunResult']
/** A command of `spawn`. */
export type ProcessInfo = Schemas['ExecSession']
/** Any process in a sandbox. */
export type SystemProcess = Schemas['SystemProcess']
export type ListeningPort = Schemas['ListeningPort']
/** A change of state, from the log of the organisation. */
export type EventInfo = Schemas['Event']
export type SessionInfo = Schemas['Session']
export type Message = Schemas['Message']
export type SessionEvent = Schemas['SessionEvent']
export type AccessToken = Schemas['AccessToken']
/** One page of the turns of a session. */
export type TimelinePage = Schemas['Timeline']
/** What answers a fork of several. */
export type ForkedSessions = Schemas['ForkedSessions']
/** A message and what the agent has done with it. */
export type TurnInfo = Schemas['Turn']
export type TurnUsage = Schemas['TurnUsage']
/** Where a session is after a rewind, and what undoes it. */
export type RewoundInfo = Schemas['Rewound']
/** What a rewind would change. */
export type RewindPreview = Schemas['RewindPreview']
/** How the working folders of two states of sessions differ, and what each has taken. */
export type SessionComparison = Schemas['SessionComparison']
/** What forks of a session would take. */
export type ForkEstimate = Schemas['ForkEstimate']
/** A capsule, without its link. */
export type CapsuleInfo = Schemas['Capsule']
export type MadeCapsuleInfo = Schemas['MadeCapsule']
/** What the link of a capsule shows. */
export type CapsuleView = Schemas['CapsuleView']
