import { chmod, mkdir, readFile, rm } from 'node:fs/promises'
import { mountsBelow } from '../disk/index.ts'
import type { Cgroups } from './cgroup.ts'
import type { HostTraits } from './config.ts'
import type { HostNames } from './names.ts'
import { forgetEarlierBoot } from './running.ts'

/** Makes the folders in `/run`. Only names that are known can be reached through the outer ones. */
export async function makeRunFolders(names: HostNames): Promise<void> {
  const folders = [
    [names.runDir, 0o711],
    [names.sandboxesDir, 0o711],
    [names.runcRoot, 0o700],
  ] as const
  await mkdir(names.runDir, { recursive: true })
  await forgetEarlierBoot(names)
  for (const [folder, mode] of folders) {
    await mkdir(folder, { recursive: true })
    await chmod(folder, mode)
  }
}

export async function removeRunFolders(names: HostNames): Promise<void> {
  const [mount] = await mountsBelow(names.runDir)
  if (mount !== undefined) throw new Error(`${mount.target} is still mounted`)
  await rm(names.runDir, { recursive: true, force: true })
}

export async function findTraits(cgroups: Cgroups): Promise<HostTraits> {
  const limits = await readFile('/proc/self/limits', 'utf8')
  const files = /^Max open files\s+\S+\s+(\d+)/m.exec(limits)?.[1]
  return {
    filesMax: files === undefined ? Number.MAX_SAFE_INTEGER : Number(files),
    swapAccounting: await cgroups.countsSwap(),
    ipv6: await readFile('/proc/net/if_inet6').then(
      () => true,
      () => false,
    ),
  }
}
