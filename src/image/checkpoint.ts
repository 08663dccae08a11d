import { ignoreNotFound } from '../errors.ts'
import type { Checkpoint, SandboxService } from '../sandbox/index.ts'

/** The checkpoint of an image or a layer if it is ready; undefined when it is gone or has lost its data. */
export async function readyCheckpoint(
  { checkpoints }: SandboxService,
  orgId: string,
  id: string,
): Promise<Checkpoint | undefined> {
  const checkpoint = await checkpoints.settled(orgId, id).catch(ignoreNotFound)
  return checkpoint?.status === 'ready' ? checkpoint : undefined
}
