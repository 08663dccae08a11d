import { lstatSync, opendirSync, statSync } from 'node:fs'
import { join } from 'node:path'

/** A session keeps no more artifacts. */
const filesMax = 200

/** Entries of folders that are looked at. In a project with more, what lies nearer to its top is found. */
const entriesMax = 5000

/** The longest path of an artifact. */
const pathCharactersMax = 4096

/** Folders in which programs put what they fetch or make. Those whose name begins with a dot are left out as well. */
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
 * Files below a folder that were made, changed or moved there since a time, the newest last. Not those that programs keep
 * beside the work: logs, and what is in generated folders. By the change of the inode: a copy or an archive may bring any
 * time of modification along.
 */
export function changedFiles(folder: string, sinceMs: number): string[] {
  const found: ChangedFile[] = []
  const { dev } = statSync(folder)
  const folders = [folder]
  let entriesLeft = entriesMax
  for (const path of folders) {
    try {
      // Not into `/proc`, or into what somebody has mounted.
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
      // It has gone meanwhile, or may not be read.
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
