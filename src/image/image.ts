import type { ImageConfig } from './config.ts'
import type { ManifestOutline } from './manifest.ts'

/** A built image. With a name it is a snapshot, which only its owner removes; without one a cache entry. */
export interface Image {
  id: string
  orgId: string
  /** `repository` or `repository:tag`, unique in its organisation. The tag `latest` is left out. */
  name?: string
  /** The name that it takes from the image that has it, at the moment when it is `ready`. */
  replaces?: string
  /** SHA-256 in hex of what the build depends on. Requests with the same hash get the same files. */
  contentHash: string
  /** Hash of the state after each step, of which the builder keeps a checkpoint. */
  layerHashes: string[]
  /** Once it is `ready`. Images of one organisation with the same content share it. */
  checkpointId?: string
  status: ImageStatus
  manifest: ManifestOutline
  /** Least memory of a sandbox that starts from it, in MiB. */
  memoryMb: number
  /** Its build goes on without a client, also after a restart of the server. */
  isDetached: boolean
  /** Every organisation may start sandboxes from its name. */
  isPublic: boolean
  failure?: BuildFailure
  /** Present for an OCI image, and for one that was built on one. */
  oci?: OciFacts
  config?: ImageConfig
  /** Of its checkpoint; only read, never written. */
  sizeBytes?: number
  createdAt: Date
  lastUsedAt: Date
}

/** The part of an OCI image's configuration that sandboxes do not apply, for clients to run. They apply variables, folder and user. */
export interface OciFacts {
  /** `sha256:…`: the image that the reference named when it was fetched. */
  digest: string
  entrypoint: readonly string[]
  cmd: readonly string[]
}

/** The end of a build. */
export interface BuiltImage {
  checkpointId: string
  oci?: OciFacts
  /** Of a Dockerfile or an OCI image. */
  config?: ImageConfig
  layerHashes?: string[]
}

export type ImageStatus = 'building' | 'ready' | 'failed'

/** Why a build failed, and, when a step did, which. */
export interface BuildFailure {
  message: string
  /** From 1. */
  step?: number
  type?: string
  /** Of a Dockerfile. */
  line?: number
  exitCode?: number
  /** The end of it. */
  stderr?: string
}

export type ImageChange = Partial<
  Pick<Image, 'checkpointId' | 'status' | 'isPublic' | 'failure' | 'lastUsedAt' | 'oci' | 'config' | 'layerHashes'>
>

/** The state after a step: a disk checkpoint that a later build with the same beginning starts from. */
export interface ImageLayer {
  orgId: string
  hash: string
  checkpointId: string
}

/** An event for followers of a build. `step` 0 comes before the first step. */
export type BuildEvent =
  | { event: 'build_log'; step: number; type: string; message: string }
  | { event: 'build_output'; step: number; stream: 'stdout' | 'stderr'; data: string }

/** Bounds of images (`ATOLL_LIMITS`). */
export const defaultImageLimits = {
  stepsMax: 100,
  /** Files of one manifest. */
  filesMax: 20_000,
  /** Images with a name of one organisation. */
  snapshotsMax: 100,
  /** Builds of one organisation at a time; more wait. */
  buildsAtOnce: 2,
  buildMs: 600_000,
  /** Timeout of each step, and of each wait for a `readyCommand`. */
  stepMs: 300_000,
  builderDiskMb: 10_240,
  /** What the caches of one organisation hold together. */
  cacheMb: 10_240,
  /** An image without a name is removed when nobody has started from it for this long. */
  unusedDays: 30,
  /** Files, folders and links of one context. */
  contextFilesMax: 100_000,
  /** The bytes of its files. */
  contextBytesMax: 5 * 1024 ** 3,
  /** Contexts of one organisation; the one that was used longest ago goes first. */
  contextsMax: 200,
  /** The bytes of all files of its contexts, each counted as 16 KiB at least. */
  contextsBytesMax: 20 * 1024 ** 3,
}

export type ImageLimits = typeof defaultImageLimits
