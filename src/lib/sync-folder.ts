import { open } from 'node:fs/promises'

/** Returns when the names in a folder are on the disk: those of files that were made, linked, renamed or removed there. */
export async function syncFolder(path: string): Promise<void> {
  await using folder = await open(path)
  await folder.sync()
}
