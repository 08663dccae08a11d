import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import type { DiskPool } from './index.ts'
import type { HostTool } from '../hostd/index.ts'
import { diskOf, layerOf } from '../host/bundle.ts'
import type { ImageFolder } from '../host/image-folder.ts'
import type { SandboxRecord } from '../host/records.ts'
import { removeFolders } from '../host/cleanup.ts'

const forgetTimeoutMs = 120_000

/**
 * Overlay notes in an upper layer where on the disk the layers below it lie, and refuses it, or hides what is in their folders,
 * once they lie elsewhere: an image folder or a layer that was copied is no longer what it was. So a file beside the upper
 * layer says what it was last mounted over, and where that is something else, all notes go first.
 */
export interface LowersHost {
  pool: DiskPool
  images: ImageFolder
  hostd: HostTool
}

/** Makes the disk of a sandbox that does not run fit what it stands on now. */
export async function fitUpper(host: LowersHost, record: SandboxRecord): Promise<void> {
  const { pool, hostd } = host
  const disk = pool.path(diskOf(record))
  const lowers = await lowersOf(host, record)
  if ((await readFile(fileOf(host, record), 'utf8').catch(() => '')) === lowers) return
  if ((await readdir(`${disk}/upper`)).length > 0) {
    await hostd.runTool(['forget-origins', '--dir', `${disk}/upper`], { timeoutMs: forgetTimeoutMs })
    // Its index goes by the same places.
    await removeFolders(hostd, [`${disk}/work`])
    await mkdir(`${disk}/work`, { mode: 0o700 })
  }
  await noteLowers(host, record, lowers)
}

/** Notes of a disk, of which earlier versions have not, that it was mounted over what it stands on now. */
export async function rememberLowers(host: LowersHost, record: SandboxRecord): Promise<void> {
  await noteLowers(host, record, await lowersOf(host, record))
}

/** The disk may be full. Without the note it is made to fit once more. */
async function noteLowers(host: LowersHost, record: SandboxRecord, lowers: string): Promise<void> {
  await writeFile(fileOf(host, record), lowers).catch(() => undefined)
}

function fileOf({ pool }: LowersHost, record: SandboxRecord): string {
  return pool.path(`${diskOf(record)}/lowers`)
}

/** A copy is born at another time than what it is a copy of; both times and numbers stay over boots and mounts. */
async function lowersOf({ pool, images }: LowersHost, { base, layers }: SandboxRecord): Promise<string> {
  const paths = layers.map((layer) => pool.path(`${layerOf(layer.checkpointId)}/upper`))
  const births = [...paths, images.pathOf(base, 'base')].map(async (path) => {
    const { ino, birthtimeNs } = await stat(path, { bigint: true })
    return `${ino} ${birthtimeNs}\n`
  })
  return (await Promise.all(births)).join('')
}
