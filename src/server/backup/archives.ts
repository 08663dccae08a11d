import { mkdir, readdir, realpath, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../../runtime/command.ts'
import { exists } from '../../runtime/exists.ts'
import type { BackupFolder } from './folder.ts'
import { imageNamePattern, type Manifest, type Part } from './manifest.ts'

/** Small files of the data directory that stand for themselves; those of builds end with them. */
const smallFiles = [
  'identity',
  'signing-secret',
  'sealing-secret',
  'webhook-secret',
  'secrets-key',
  'definitions',
  'builds',
  'db/own.conf',
]
/** Logs of ended builds, at most: their names are arguments. */
const logsMax = 20_000
/** Files of running builds may come and go during an attempt. */
const attempts = 5
const extractTimeoutMs = 3_600_000
const options = ['--numeric-owner', '--xattrs', '--xattrs-include=*', '--acls'] as const

/** Archives what no step of a sandbox changes. */
export async function archiveFiles(folder: BackupFolder, dataDir: string, signal: AbortSignal): Promise<Part> {
  const found = await Promise.all(smallFiles.map((name) => exists(join(dataDir, name))))
  const names = smallFiles.filter((_, index) => found[index])
  for (let attempt = 1; ; attempt += 1) {
    const all = [...names, ...(await endedLogs(dataDir))]
    const argv = ['tar', '--create', ...options, '--directory', dataDir, '--', ...all] as [string, ...string[]]
    try {
      return await folder.writeOutput(folder.freshName('files'), argv, { signal })
    } catch (error) {
      if (attempt === attempts || signal.aborted) throw error
    }
  }
}

/** Each by its name: tar fails for a folder in which files come and go meanwhile. */
async function endedLogs(dataDir: string): Promise<string[]> {
  const logs: string[] = []
  const ended = 'build-logs/ended'
  for (const orgId of await readdir(join(dataDir, ended)).catch(() => []))
    for (const id of await readdir(join(dataDir, ended, orgId)).catch(() => [])) logs.push(`${ended}/${orgId}/${id}`)
  return logs.slice(0, logsMax)
}

export async function extractFiles(file: string, dataDir: string): Promise<void> {
  await run(['tar', '--extract', ...options, '--same-permissions', '--directory', dataDir, '--file', file], {
    timeoutMs: extractTimeoutMs,
  })
}

/** The images that records name. An image outside the image folder is named by its path. */
export function imagesIn(records: readonly { text: string }[]): string[] {
  const names = records.flatMap(({ text }) => {
    const { base, guest, agent, memory = {} } = parsed(text)
    const { guest: memoryGuest, agent: memoryAgent } = memory
    return [base, guest, agent, memoryGuest, memoryAgent]
  })
  const isName = (name: unknown): name is string => typeof name === 'string' && imageNamePattern.test(name)
  return [...new Set(names.filter(isName))].toSorted()
}

interface Named {
  base?: unknown
  guest?: unknown
  agent?: unknown
  memory?: { guest?: unknown; agent?: unknown }
}

/** A record in quarantine may hold anything. */
function parsed(text: string): Named {
  try {
    return (JSON.parse(text) as Named | null) ?? {}
  } catch {
    return {}
  }
}

/** Archives images that the former backup lacks: images never change. Returns the parts, and the names of images that are gone. */
export async function archiveImages(
  folder: BackupFolder,
  { imageDir, names, signal }: { imageDir: string; names: readonly string[]; signal: AbortSignal },
): Promise<{ images: Manifest['images']; missing: string[] }> {
  const images: Manifest['images'] = {}
  const missing: string[] = []
  for (const name of names) {
    const had = folder.manifest?.images[name]
    const path = await realpath(join(imageDir, name)).catch(() => undefined)
    if (had === undefined && path === undefined) missing.push(name)
    else if (had !== undefined) images[name] = had
    else {
      const argv = ['tar', '--create', '--sparse', ...options, '--directory', path ?? '', '.'] as const
      images[name] = await folder.writeOutput(folder.freshName(`images/${name}`), [...argv], { signal })
    }
  }
  return { images, missing }
}

/** Puts an image into the image folder, unless it is there. */
export async function extractImage(file: string, path: string): Promise<void> {
  if (await exists(path)) return
  const draft = `${path}.restoring`
  await rm(draft, { recursive: true, force: true })
  await mkdir(draft)
  await extractFiles(file, draft)
  await run(['sync', '--file-system', draft], { timeoutMs: extractTimeoutMs })
  await rename(draft, path)
}
