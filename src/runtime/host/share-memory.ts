import { exists } from '../exists.ts'
import type { DiskPool } from '../disk/index.ts'
import type { HostTool } from '../hostd/index.ts'
import type { Inventory } from './inventory.ts'
import type { CheckpointRecord } from './records.ts'

/** Long, as gigabytes are read and compared while the disk is idle. */
const shareTimeoutMs = 600_000
/**
 * A checkpoint that shares with a predecessor keeps the space of the whole chain, as long as it uses a part of each. So after this many a
 * checkpoint shares with none.
 */
const chainMax = 16

interface ShareHost {
  hostd: HostTool
  pool: Pick<DiskPool, 'path'>
  inventory: Pick<Inventory, 'checkpoints'>
  log: (message: string) => void
}

/**
 * Lets the saved memory of a checkpoint share disk space with that of an earlier one of the same sandbox, or of the one from which the
 * sandbox was started: from turn to turn more than nine tenths of an agent's memory are the same. Both are on the disk already. Never
 * throws: a failure is logged, and the checkpoint stays as it was.
 */
export async function shareMemory(
  { hostd, pool, inventory, log }: ShareHost,
  checkpointId: string,
  signal?: AbortSignal,
): Promise<void> {
  const record = inventory.checkpoints.get(checkpointId)
  const like = record && likeliest(inventory, record)
  if (record?.memory === undefined || like === undefined) return
  const chain = (like.sharing ?? 0) + 1
  if (chain >= chainMax) return
  const folder = pool.path(record.memory.folder)
  const request = { op: 'share-pages', like: pool.path(like.folder), dir: folder } as const
  try {
    const shared = Number(await hostd.runTool(request, { timeoutMs: shareTimeoutMs, signal }))
    if (shared === 0) return
    await inventory.checkpoints.update(checkpointId, ({ memory, ...rest }) =>
      memory === undefined ? undefined : { ...rest, memory: { ...memory, sharing: chain } },
    )
  } catch (error) {
    if (signal?.aborted) return
    // Either may have been removed meanwhile.
    const areThere = await Promise.all([folder, pool.path(like.folder)].map(exists))
    if (!areThere.includes(false)) log(`the memory of checkpoint ${checkpointId} shares no space: ${String(error)}`)
  }
}

/** The memory of another checkpoint that should be most like that of `record`. */
function likeliest({ checkpoints }: Pick<Inventory, 'checkpoints'>, record: CheckpointRecord) {
  const ofSandbox = checkpoints.all().filter((other) => other.sandboxId === record.sandboxId)
  const before = ofSandbox.slice(0, ofSandbox.indexOf(record)).toReversed()
  const ancestors = record.layers.slice(1).map(({ checkpointId }) => checkpoints.get(checkpointId))
  return [...before, ...ancestors]
    .map((other) => other?.memory)
    .find((memory) => memory !== undefined && memory.unflushed === undefined)
}
