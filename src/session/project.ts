import type { DirectoryEntry, FileService } from '../sandbox/index.ts'
import { withTimeout } from '../lib/async/timeout.ts'

/** How long a turn waits for what its sandbox is asked at its end. A slow or hostile one does not keep it from ending. */
export const inspectionMs = 2000
const manifestBytesMax = 256 * 1024
const sourceBytesMax = 64 * 1024
const sourceFilesMax = 20

/** First match wins: what is built on something else comes before it. */
const packageFrameworks: readonly [framework: string, dependencies: readonly string[]][] = [
  ['nextjs', ['next']],
  ['astro', ['astro']],
  ['svelte', ['svelte', '@sveltejs/kit']],
  ['vue', ['vue', 'nuxt']],
  ['react', ['react']],
  ['vite', ['vite']],
  ['express', ['express']],
]

const pythonFrameworks = ['fastapi', 'flask']
const pythonManifests = ['requirements.txt', 'pyproject.toml']

interface Place {
  files: FileService
  orgId: string
  sandboxId: string
  cwd: string
}

/**
 * What the files in the working directory are built with; `''` when nothing tells, `undefined` when the sandbox does not
 * answer in time.
 */
export async function detectFramework(place: Place): Promise<string | undefined> {
  return await withTimeout(
    inspectionMs,
    inspect(place).catch(() => undefined),
  )
}

async function inspect(place: Place): Promise<string> {
  const entries = await place.files.list(place.orgId, place.sandboxId, place.cwd)
  const files = entries.filter(({ isDir }) => !isDir)
  const manifest = files.find(({ name }) => name === 'package.json')
  return (
    (manifest && manifest.size <= manifestBytesMax ? packageFramework(await read(place, manifest)) : '') ||
    (await pythonFramework(place, files)) ||
    (files.some(({ name }) => name === 'index.html') ? 'static' : '')
  )
}

function packageFramework(text: string): string {
  let manifest: unknown
  try {
    manifest = JSON.parse(text)
  } catch {
    return ''
  }
  const { dependencies, devDependencies } = (manifest ?? {}) as Record<string, unknown>
  const names = new Set([...keysOf(dependencies), ...keysOf(devDependencies)])
  return packageFrameworks.find(([, wanted]) => wanted.some((name) => names.has(name)))?.[0] ?? ''
}

function keysOf(value: unknown): string[] {
  return typeof value === 'object' && value !== null ? Object.keys(value) : []
}

async function pythonFramework(place: Place, files: readonly DirectoryEntry[]): Promise<string> {
  const manifests = files.filter(({ name, size }) => pythonManifests.includes(name) && size <= manifestBytesMax)
  const sources = files.filter(({ name }) => name.endsWith('.py')).slice(0, sourceFilesMax)
  for (const file of [...manifests, ...sources]) {
    const text = await read(place, file)
    const found = pythonFrameworks.find((framework) => mentions(file.name, text, framework))
    if (found !== undefined) return found
  }
  return ''
}

function mentions(name: string, text: string, framework: string): boolean {
  // Blanks and no newlines before the words: each line would be searched to the end of the text, for ever in a large one.
  if (name.endsWith('.py')) return new RegExp(`^[ \\t]*(?:from|import)[ \\t]+${framework}\\b`, 'm').test(text)
  return new RegExp(`(?:^|["'\\s])${framework}(?:$|[^A-Za-z0-9_-])`, 'im').test(text)
}

/** The file, or the beginning of one that is longer than anything of interest. */
async function read(place: Place, { name, size }: DirectoryEntry): Promise<string> {
  const range = size > manifestBytesMax ? { start: 0, end: sourceBytesMax - 1 } : undefined
  const { body } = await place.files.read(place.orgId, place.sandboxId, `${place.cwd}/${name}`, range)
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      chunks.push(chunk)
      bytes += chunk.length
      // It may have grown since it was listed.
      if (bytes >= manifestBytesMax) break
    }
  } finally {
    body.destroy()
  }
  return Buffer.concat(chunks).toString('utf8')
}
