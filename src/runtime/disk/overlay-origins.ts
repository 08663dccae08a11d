import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { diskOf, type DiskOwner, type Layer, layerOf } from './folders.ts'
import type { DiskPool } from './index.ts'
import type { HostTool } from '../hostd/index.ts'
import { removeFolders } from '../cleanup.ts'

const forgetTimeoutMs = 120_000

/**
 * Overlay stores in an upper layer the file handles of the layers below. When those layers are copied, as with a moved image folder,
 * overlay refuses the upper layer, or hides the contents of folders. So a file beside the upper layer identifies the layers over which
 * it was last mounted; when they have changed, the stored handles are removed before the mount.
 */
export interface LowersHost {
  pool: DiskPool
  images: { pathOf(reference: string, kind: 'base'): string }
  hostd: HostTool
}

/** The disk of a sandbox, and what it is mounted over. */
interface MountedDisk extends DiskOwner {
  base: string
  layers: readonly Layer[]
}

/** Adapts the disk of a stopped sandbox to its present layers and base. */
export async function adaptUpper(host: LowersHost, record: MountedDisk): Promise<void> {
  const { pool, hostd } = host
  const disk = pool.path(diskOf(record))
  const lowers = await lowersOf(host, record)
  if ((await readFile(fileOf(host, record), 'utf8').catch(() => '')) === lowers) return
  if ((await readdir(`${disk}/upper`)).length > 0) {
    await hostd.runTool({ op: 'forget-origins', dir: `${disk}/upper` }, { timeoutMs: forgetTimeoutMs })
    // The index of overlay holds the same handles.
    await removeFolders(hostd, [`${disk}/work`])
    await mkdir(`${disk}/work`, { mode: 0o700 })
  }
  await noteLowers(host, record, lowers)
}

/** Writes that file. A full disk may prevent it; then the next mount adapts the upper layer once more. */
async function noteLowers(host: LowersHost, record: MountedDisk, lowers: string): Promise<void> {
  await writeFile(fileOf(host, record), lowers).catch(() => undefined)
}

function fileOf({ pool }: LowersHost, record: MountedDisk): string {
  return pool.path(`${diskOf(record)}/lowers`)
}

/** Identifies the layers by number and time of birth: those of a copy differ, and neither changes with a boot or a mount. */
async function lowersOf({ pool, images }: LowersHost, { base, layers }: MountedDisk): Promise<string> {
  const paths = layers.map((layer) => pool.path(`${layerOf(layer.checkpointId)}/upper`))
  const births = [...paths, images.pathOf(base, 'base')].map(async (path) => {
    const { ino, birthtimeNs } = await stat(path, { bigint: true })
    return `${ino} ${birthtimeNs}\n`
  })
  return (await Promise.all(births)).join('')
}
