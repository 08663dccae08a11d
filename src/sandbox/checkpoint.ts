import type { CheckpointKind } from './ports/runtime-driver.ts'
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

/**
 * Whether the service itself has made it and has use of it yet: its name ends with what makes its id unique. Clients choose names,
 * but no ids.
 */
export function isInternal({ id, name }: Pick<Checkpoint, 'id' | 'name'>): boolean {
  return name.endsWith(id.slice('cp-'.length))
}

export type CheckpointChange = Partial<Pick<Checkpoint, 'status' | 'sizeBytes'>> & { error?: string | undefined }
