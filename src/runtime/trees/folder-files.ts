import { z } from 'zod'
import type { FolderFile } from '../../sandbox/ports/disk-trees.ts'

const about = z.object({ path: z.base64(), mode: z.int().min(0).max(0o777), size: z.int().min(0) })
const lengthBytes = 4

/** Reads what `program.ts` has written of a folder. Throws for anything else, and for a path that leads out of the folder. */
export function parseFolder(output: Buffer): FolderFile[] {
  const files: FolderFile[] = []
  for (let at = 0; at < output.length;) {
    const length = output.readUInt32BE(at)
    const start = at + lengthBytes + length
    const { path: encoded, mode, size } = about.parse(JSON.parse(output.toString('utf8', at + lengthBytes, start)))
    const path = Buffer.from(encoded, 'base64').toString('utf8')
    if (start + size > output.length) throw new Error('the files of a folder break off')
    if (path === '' || path.startsWith('/') || path.split('/').some((part) => part === '..' || part === ''))
      throw new Error('a file lies outside of its folder')
    files.push({ path, mode, content: output.subarray(start, start + size) })
    at = start + size
  }
  return files
}
