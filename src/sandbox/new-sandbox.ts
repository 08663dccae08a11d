import { newId } from '../lib/id.ts'
import type { SandboxSpec } from './ports/runtime-driver.ts'
import type { Sandbox, SandboxChange } from './sandbox.ts'

type NewSandbox = {
  [Key in keyof Omit<Sandbox, 'orgId' | 'status' | 'tags' | 'restores' | 'createdAt' | 'startedAt' | 'activeAt'>]?:
    | Sandbox[Key]
    | undefined
}

/** A record in `creating`, with defaults for what is not given. */
export function newSandbox(orgId: string, given: NewSandbox): Sandbox {
  const now = new Date()
  const { fromCheckpointId } = given
  return {
    id: given.id ?? newId('sb-'),
    orgId,
    status: 'creating',
    image: given.image ?? 'base',
    cpuCount: given.cpuCount ?? 1,
    memoryMb: given.memoryMb ?? 1024,
    diskMb: given.diskMb ?? 10_240,
    timeoutSeconds: given.timeoutSeconds ?? 300,
    envs: given.envs ?? {},
    metadata: given.metadata ?? {},
    tags: {},
    ...(fromCheckpointId === undefined ? {} : { fromCheckpointId }),
    createdAt: now,
    startedAt: now,
    activeAt: now,
    restores: 0,
  }
}

export function specOf(sandbox: Sandbox): SandboxSpec {
  const { id, image, cpuCount, memoryMb, diskMb, fromCheckpointId } = sandbox
  const from = fromCheckpointId === undefined ? {} : { from: { checkpointId: fromCheckpointId } }
  return { id, image, cpuCount, memoryMb, diskMb, ...from }
}

/**
 * All of a new record that an earlier one of the same id takes over when its boot is tried again. Tags and timeout stay, since
 * clients may have set them while it was being created.
 */
export function withoutIdentity(sandbox: Sandbox): SandboxChange {
  const { id: _id, orgId: _orgId, createdAt: _createdAt, tags: _tags, timeoutSeconds: _timeout, ...rest } = sandbox
  return { ...rest, reason: undefined, reasonMessage: undefined, stoppedAt: undefined }
}
