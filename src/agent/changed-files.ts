import { lstatSync, opendirSync, statSync } from 'node:fs'
import { join } from 'node:path'

/** The limit of a session's artifacts. */
const filesMax = 200

/** Directory entries per scan, breadth first: in a larger project the files near its top are found. */
const entriesMax = 5000

/** The longest path of an artifact. */
const pathCharactersMax = 4096

/** Folders of fetched or generated files. Folders that begin with a dot are skipped as well. */
const generatedFolders = new Set([
  'node_modules',
  'vendor',
  'venv',
  '__pycache__',
  'target',
  'dist',
  'build',
  'coverage',
])

interface ChangedFile {
  path: string
  changedMs: number
}

/**
 * Files below a folder that were created, changed or moved there since a time, the newest last. Logs and generated folders are left
 * out. It compares the change time of the inode, because a copy or an archive can set any modification time.
 */
export function changedFiles(folder: string, sinceMs: number): string[] {
  const found: ChangedFile[] = []
  const { dev } = statSync(folder)
  const folders = [folder]
  let entriesLeft = entriesMax
  for (const path of folders) {
    try {
      // Do not descend into `/proc` or other mounts.
      if (path !== folder && lstatSync(path).dev !== dev) continue
      using entries = opendirSync(path)
      for (let entry = entries.readSync(); entry; entry = entries.readSync()) {
        if (entriesLeft-- === 0) return newest(found)
        const inner = join(path, entry.name)
        if (inner.length > pathCharactersMax) continue
        if (entry.isDirectory() && !isGenerated(entry.name)) folders.push(inner)
        if (!entry.isFile() || entry.name.endsWith('.log')) continue
        const { ctimeMs } = lstatSync(inner)
        if (ctimeMs >= sinceMs) found.push({ path: inner, changedMs: ctimeMs })
      }
    } catch {
      // It was removed meanwhile, or is not readable.
    }
  }
  return newest(found)
}

function isGenerated(name: string): boolean {
  return name.startsWith('.') || generatedFolders.has(name)
}

function newest(files: ChangedFile[]): string[] {
  return files
    .toSorted((a, b) => a.changedMs - b.changedMs)
    .slice(-filesMax)
    .map(({ path }) => path)
}
