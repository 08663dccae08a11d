import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { run } from '../command.ts'
import { isMounted, mountsBelow, unmountBelow } from '../disk/index.ts'
import type { HostNames } from '../host-names.ts'
import { hostToolAt } from '../hostd/index.ts'

/**
 * Makes the folders in `/run`. Outer folders cannot be listed (mode 0711), and mounts below them appear in no other mount
 * namespace that exists by then.
 */
export async function makeRunFolders(names: HostNames, stateDir: string, hostTool: string): Promise<void> {
  const folders = [
    [names.runDir, 0o711],
    [names.sandboxesDir, 0o711],
    [stateDir, 0o700],
  ] as const
  await mkdir(names.runDir, { recursive: true })
  await hostToolAt(hostTool).runTool({ op: 'make-run-folder', dir: names.runDir })
  await forgetEarlierBoot(names, stateDir)
  for (const [folder, mode] of folders) {
    await mkdir(folder, { recursive: true })
    await chmod(folder, mode)
  }
  await mountEmpty(names.emptyDir)
}

/**
 * Makes the folder a file system of its own. A plain folder would have the flags of `/run`, such as `nosuid`, which the user namespace locks:
 * CRIU could not restore those of the saved mount.
 */
async function mountEmpty(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true })
  if (await isMounted(folder)) return
  await run(['mount', '--types', 'tmpfs', '--options', 'ro,size=4k,nr_inodes=2,mode=0555', 'tmpfs', folder])
}

export async function removeRunFolders(names: HostNames): Promise<void> {
  await unmountBelow(names.emptyDir)
  const [mount] = (await mountsBelow(names.runDir)).filter(({ target }) => target !== names.runDir)
  if (mount !== undefined) throw new Error(`${mount.target} is still mounted`)
  await unmountBelow(names.runDir)
  await rm(names.runDir, { recursive: true, force: true })
}

/** Removes process numbers of an earlier boot: not every machine empties `/run`. Throws `unavailable` when `/run` cannot be written. */
async function forgetEarlierBoot(names: HostNames, stateDir: string): Promise<void> {
  const file = `${names.runDir}/boot-id`
  const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8')
  if ((await readFile(file, 'utf8').catch(() => boot)) !== boot) {
    await rm(stateDir, { recursive: true, force: true })
    for (const name of ['dnsmasq', 'lxcfs']) await rm(`${names.runDir}/${name}.pid`, { force: true })
  }
  await writeFile(file, boot).catch((error: unknown) => {
    throw new ServiceError('unavailable', `${names.runDir} cannot be written`, { cause: error })
  })
}
