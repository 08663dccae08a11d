import { ServiceError } from '../errors.ts'
import { newId } from '../lib/id.ts'
import type { Checkpoint } from './checkpoint.ts'
import { newSandbox } from './new-sandbox.ts'
import type { SandboxStatus } from './sandbox.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

/**
 * Makes the store know a sandbox whose disk is back from quarantine, and returns its state. One that it does not know gets a row
 * with default sizes, of the given organisation. Throws `conflict` for one that was deleted.
 */
export async function readmitSandbox(store: SandboxStore, orgId: string, id: string): Promise<SandboxStatus> {
  const known = await store.sandbox(id)
  if (known?.status === 'stopped') throw new ServiceError('conflict', `sandbox ${id} was deleted`)
  if (known === undefined) await store.insertSandbox({ ...newSandbox(orgId, { id }), status: 'hibernated' })
  else if (known.reason === 'host_lost') await hibernateReturned(store, id)
  return (await store.sandbox(id))?.status ?? 'hibernated'
}

/** One that is in error because its disk was not to be had hibernates again. */
export async function hibernateReturned(store: SandboxStore, id: string): Promise<void> {
  const reasonMessage = 'its disk was gone and is back; the next operation starts it again'
  await store.updateSandbox(id, { status: 'hibernated', reasonMessage }, ['error'])
}

/** Likewise for a checkpoint. Where its source is not known it becomes that of a sandbox that does not exist. */
export async function readmitCheckpoint(
  store: SandboxStore,
  orgId: string,
  { id, kind, sizeBytes, sandboxId }: Pick<Checkpoint, 'id' | 'kind' | 'sizeBytes'> & { sandboxId?: string },
): Promise<Checkpoint> {
  const known = await store.checkpoint(id)
  if (known !== undefined) {
    const change = { status: 'ready', error: undefined } as const
    return known.status === 'failed' ? ((await store.updateCheckpoint(id, change)) ?? known) : known
  }
  const { image, cpuCount, memoryMb, diskMb, envs } = newSandbox(orgId, {})
  const checkpoint: Checkpoint = {
    id,
    orgId,
    sandboxId: sandboxId ?? newId('sb-'),
    name: `restored-${id}`,
    kind,
    status: 'ready',
    sizeBytes,
    sandboxConfig: { image, cpuCount, memoryMb, diskMb, envs },
    createdAt: new Date(),
  }
  await store.insertCheckpoint(checkpoint)
  return checkpoint
}
