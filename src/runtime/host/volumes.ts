import { lstat, readFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { unlessMissing } from '../../lib/missing-files.ts'
import type { KnownResources, ReconcileReport, SandboxVolume, VolumeSpec } from '../../sandbox/ports/runtime-driver.ts'
import type { DiskPool } from '../disk/index.ts'
import { checkId, type HostNames } from '../host-names.ts'
import type { HostTool } from '../hostd/index.ts'
import { idsPerSandbox } from '../oci/container-config.ts'
import type { ProcessIdentity } from '../process.ts'
import { readNow } from '../read-now.ts'
import type { SandboxRecord } from './records.ts'

const mebibyte = 1024 * 1024
const volumesFolder = 'volumes'

/** The subvolume of a volume or of its snapshot. Files belong to ids from 0 on, whichever sandbox wrote them. */
export function volumeOf(id: string): string {
  return `${volumesFolder}/${checkId(id)}`
}

/** See `RuntimeDriver.createVolume`. */
export async function createVolume(pool: DiskPool, { id, sizeMb, from }: VolumeSpec): Promise<void> {
  const volume = volumeOf(id)
  if (await pool.has(volume)) throw new ServiceError('conflict', `volume ${id} exists`)
  if (from !== undefined) await assertThere(pool, from)
  try {
    await pool.createSubvolume(volume, from === undefined ? undefined : pool.path(volumeOf(from)))
    await pool.limit(volume, sizeMb * mebibyte)
    await pool.settle(volumesFolder)
  } catch (error) {
    await pool.remove(volume).catch(() => undefined)
    throw error
  }
}

/** See `RuntimeDriver.snapshotVolume`. */
export async function snapshotVolume(pool: DiskPool, id: string, snapshotId: string): Promise<void> {
  const snapshot = volumeOf(snapshotId)
  await assertThere(pool, id)
  if (await pool.has(snapshot)) throw new ServiceError('conflict', `snapshot ${snapshotId} exists`)
  await pool.snapshot(volumeOf(id), snapshot)
}

/** Shows the volumes in the bundle of a sandbox, from where the runtime binds them. */
export async function mountVolumes(
  { pool, names, hostd }: { pool: DiskPool; names: HostNames; hostd: HostTool },
  { id: sandboxId, rangeStart }: SandboxRecord,
  volumes: readonly SandboxVolume[],
): Promise<void> {
  for (const { id, readOnly } of volumes) {
    await assertThere(pool, id)
    await hostd.runTool({
      op: 'mount-volume',
      source: pool.path(volumeOf(id)),
      target: names.volumeDir(sandboxId, id),
      range: { start: rangeStart, count: idsPerSandbox },
      readOnly,
    })
  }
}

/**
 * Throws `conflict` when a volume's path leads over anything but folders, such as a symbolic link. To be called before anybody uses the root,
 * as the runtime then makes folders and mounts there.
 */
export async function assertMountPoints(root: string, volumes: readonly SandboxVolume[]): Promise<void> {
  for (const { path } of volumes) {
    const names = path.slice(1).split('/')
    for (const depth of names.keys()) {
      const above = `/${names.slice(0, depth + 1).join('/')}`
      const found = await lstat(root + above).catch(unlessMissing)
      if (found === undefined) break
      if (found.isSymbolicLink()) throw overLink(path)
      if (found.isDirectory()) continue
      const where = above === path ? 'where' : 'above where'
      throw new ServiceError('conflict', `${above}, ${where} a volume is to be mounted, is no folder`)
    }
  }
}

function overLink(path: string): ServiceError {
  return new ServiceError('conflict', `${path}, where a volume is to be mounted, leads over a symbolic link`)
}

/**
 * Throws `conflict` unless each volume of a started sandbox is mounted at its path. Root inside may have replaced a folder above by a link:
 * the runtime then stays in the root of the sandbox, but CRIU would not find the mount.
 */
export async function assertMounted(process: ProcessIdentity, volumes: readonly SandboxVolume[]): Promise<void> {
  if (volumes.length === 0) return
  const table = await readFile(`/proc/${process.pid}/mountinfo`, 'utf8')
  const points = new Set(table.split('\n').map((line) => unescaped(line.split(' ')[4] ?? '')))
  const missing = volumes.find(({ path }) => !points.has(path))
  if (missing === undefined) return
  throw overLink(missing.path)
}

/** The volumes that a running sandbox has mounted, by its own table of mounts. */
export function mountedVolumes({ pid }: ProcessIdentity): SandboxVolume[] {
  const lines = (readNow(`/proc/${pid}/mountinfo`) ?? '').split('\n').map((line) => line.split(' '))
  return lines.flatMap(([, , , root = '', path = '', options = '']) => {
    if (!root.startsWith(`/${volumesFolder}/`)) return []
    const id = root.slice(volumesFolder.length + 2)
    return [{ id, path: unescaped(path), readOnly: options.split(',').includes('ro') }]
  })
}

/** A path of proc_pid_mountinfo(5): which characters it escapes depends on the kernel. */
function unescaped(path: string): string {
  return path.replaceAll(/\\(\d{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))
}

/**
 * Removes the abandoned volumes. Unknown ones stay, as the right database may know them. No sandbox has an abandoned volume mounted: those that
 * had were ended before, or their records name it.
 */
export async function reconcileVolumes(
  { pool, log }: { pool: Pick<DiskPool, 'list' | 'remove'>; log: (message: string) => void },
  { volumeIds: known = [], abandoned }: KnownResources,
  report: Pick<ReconcileReport, 'lostVolumes' | 'unknownVolumes' | 'removed'>,
): Promise<void> {
  const found = new Set(await pool.list(volumesFolder))
  for (const id of abandoned.volumeIds ?? []) {
    if (!found.delete(id)) continue
    await pool.remove(volumeOf(id)).then(
      () => report.removed.push(id),
      (error: unknown) => log(`volume ${id} cannot be removed now: ${String(error)}`),
    )
  }
  report.lostVolumes.push(...known.filter((id) => !found.has(id)))
  for (const id of known) found.delete(id)
  report.unknownVolumes.push(...found)
  if (found.size > 0) log(`nobody knows these volumes, and they stay: ${[...found].join(', ')}`)
}

async function assertThere(pool: DiskPool, id: string): Promise<void> {
  if (await pool.has(volumeOf(id))) return
  throw new ServiceError('unavailable', `the data of volume ${id} is not on this host`)
}
