import { lstatSync, opendirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { pathCharactersMax } from './turn-events.ts'

/** The limit of a session's artifacts. */
const filesMax = 200

/** Directory entries per scan, breadth first: in a larger project the files near its top are found. */
const entriesMax = 5000

/** Hidden folders, and folders of fetched or generated files. */
const skippedFolder = /^(\..*|node_modules|vendor|venv|__pycache__|target|dist|build|coverage)$/s

/**
 * Files below a folder that were created, changed or moved there since a time, the newest last. Logs and generated folders are left
 * out. It compares the change time of the inode, because a copy or an archive can set any modification time.
 */
export function changedFiles(folder: string, sinceMs: number): string[] {
  const found: { path: string; changedMs: number }[] = []
  const { dev } = statSync(folder)
  const folders = [folder]
  let entriesLeft = entriesMax
  for (const path of folders) {
    if (entriesLeft <= 0) break
    try {
      // Do not descend into `/proc` or other mounts.
      if (path !== folder && lstatSync(path).dev !== dev) continue
      using entries = opendirSync(path)
      for (let entry = entries.readSync(); entry && entriesLeft-- > 0; entry = entries.readSync()) {
        const inner = join(path, entry.name)
        if (inner.length > pathCharactersMax) continue
        if (entry.isDirectory() && !skippedFolder.test(entry.name)) folders.push(inner)
        if (!entry.isFile() || entry.name.endsWith('.log')) continue
        const { ctimeMs } = lstatSync(inner)
        if (ctimeMs >= sinceMs) found.push({ path: inner, changedMs: ctimeMs })
      }
    } catch {
      // It was removed meanwhile, or is not readable.
    }
  }
  return found
    .toSorted((a, b) => a.changedMs - b.changedMs)
    .slice(-filesMax)
    .map(({ path }) => path)
}
