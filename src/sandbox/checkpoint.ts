import type { CheckpointKind } from './driver.ts'
import type { Sandbox } from './sandbox.ts'

export type CheckpointStatus = 'processing' | 'ready' | 'failed'

/** Sizes and environment that a sandbox started from the checkpoint inherits. */
export type SandboxConfig = Pick<Sandbox, 'image' | 'cpuCount' | 'memoryMb' | 'diskMb' | 'envs'>

export interface Checkpoint {
  id: string
  orgId: string
  /** The source; it may be deleted long before the checkpoint. */
  sandboxId: string
  /** Unique among the checkpoints of its sandbox. */
  name: string
  kind: CheckpointKind
  status: CheckpointStatus
  sizeBytes: number
  sandboxConfig: SandboxConfig
  /** Why it failed. */
  error?: string
  createdAt: Date
}

export type CheckpointChange = Partial<Pick<Checkpoint, 'status' | 'sizeBytes'>> & { error?: string | undefined }
