import { mkdir } from 'node:fs/promises'
import { run } from '../command.ts'
import type { HostTool } from '../hostd/index.ts'
import type { DiskPool } from './index.ts'

/** Of a subvolume with an `upper` folder. A few hundred thousand files take a minute. */
const copyTimeoutMs = 600_000
/** The copy that is made. One that nobody may write into changes places within its folder alone. */
const drafts = { readOnly: 'layers/.renumbered', writable: 'renumbered' }

/** Removes what a server left that died. */
export async function removeRenumbered(pool: DiskPool): Promise<void> {
  for (const draft of Object.values(drafts)) await pool.remove(draft)
}

/**
 * Puts a copy in the place of a subvolume with an `upper` folder that nobody uses (one to be written into gets a new `work`): the same files, which share their bytes, with
 * higher inode numbers, those of `seed` (see `InodeTemplates`). `known` is told a number above all of them before the copy takes its place.
 */
export async function renumber(
  pool: DiskPool,
  hostd: HostTool,
  { path, seed, readOnly }: { path: string; seed: string; readOnly: boolean },
  known: (inodeEnd: number) => Promise<void>,
): Promise<void> {
  const draft = readOnly ? drafts.readOnly : drafts.writable
  try {
    await pool.createSubvolume(draft, seed)
    // As `cp --archive` does, which would not say so when it loses an attribute; where files cannot share, as when one of them may
    // not be copied on write, their bytes are copied.
    const preserved = '--preserve=mode,ownership,timestamps,links,xattr'
    const copy = ['cp', '--recursive', '--no-dereference', preserved, '--reflink=auto', '--'] as const
    await run([...copy, pool.path(`${path}/upper`), pool.path(draft)], { timeoutMs: copyTimeoutMs })
    const inodeEnd = await pool.nextInode(draft)
    if (inodeEnd === undefined) throw new Error('no file can be made in the copy')
    if (readOnly) await run(['btrfs', 'property', 'set', '-t', 'subvol', pool.path(draft), 'ro', 'true'])
    else await mkdir(pool.path(`${draft}/work`), { mode: 0o700 })
    // The exchange may reach the disk before bytes that were copied, and the original goes.
    await pool.flush()
    await known(inodeEnd)
    await hostd.runTool(['exchange', '--one', pool.path(path), '--other', pool.path(draft)])
  } finally {
    await pool.remove(draft)
  }
}
