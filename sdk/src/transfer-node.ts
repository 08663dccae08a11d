import { stat } from 'node:fs/promises'
import { runCommand } from './command.ts'
import { withMessage } from './errors.ts'
import { copyFile, downloadFile, uploadFile } from './file-transfer.ts'
import { copyFolder, downloadFolder, readTar, uploadFolder, writeTar } from './folder-transfer.ts'
import type { Remote, Transfer } from './transfer.ts'

export const transferInNode: Transfer = {
  async upload(remote, local, target) {
    const found = await stat(local).catch((error: unknown) => {
      throw withMessage(error, (reason) => `the upload was not begun: ${reason}`)
    })
    await (found.isDirectory() ? uploadFolder : uploadFile)(remote, local, target)
  },

  async download(remote, source, local) {
    await ((await isRemoteFolder(remote, source)) ? downloadFolder : downloadFile)(remote, source, local)
  },

  async copy(from, source, to, target) {
    await ((await isRemoteFolder(from, source)) ? copyFolder : copyFile)(from, source, to, target)
  },

  readTar,
  writeTar,
}

async function isRemoteFolder({ client, sandboxPath, user, signal }: Remote, path: string): Promise<boolean> {
  const { exitCode } = await runCommand(client, `${sandboxPath}/exec`, 'test', { args: ['-d', path], user, signal })
  return exitCode === 0
}
