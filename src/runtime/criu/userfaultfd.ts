import { readFile, writeFile } from 'node:fs/promises'

const setting = 'vm.unprivileged_userfaultfd'
const settingFile = '/proc/sys/vm/unprivileged_userfaultfd'

/** Whether a process without privileges on the host may let another fill its memory; undefined where the kernel has no setting. */
export async function userfaultfdIsAllowed(): Promise<boolean | undefined> {
  // Kernels before 5.2 have no such setting and allow it.
  const text = await readFile(settingFile, 'utf8').catch(() => undefined)
  return text === undefined ? undefined : text.trim() !== '0'
}

/**
 * Allows userfaultfd to all users of the host: restored processes of sandboxes, whose root has no privileges there, need it for lazy
 * restores. The system call filter keeps sandboxes from using it otherwise. Returns whether it is allowed.
 */
export async function allowUserfaultfd(log: (message: string) => void): Promise<boolean> {
  if ((await userfaultfdIsAllowed()) !== false) return true
  try {
    await writeFile(settingFile, '1')
    log(`${setting} was 0 and is now 1`)
    return true
  } catch (error) {
    log(`${setting} cannot be set to 1, so saved memory comes back at once and not lazily: ${String(error)}`)
    return false
  }
}
