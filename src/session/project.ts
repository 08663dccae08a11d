import { withTimeout } from '../lib/async/timeout.ts'
import { parseJson } from '../lib/json-values.ts'
import type { DirectoryEntry, FileService, SandboxService } from '../sandbox/index.ts'
import { previewPort, type SessionTimings } from './config.ts'
import type { Input } from './reducer-types.ts'
import type { SessionState } from './state.ts'

/** Number of looks after each call of `watch`. The last `slowLooks` are further apart: one minute in all. */
const looksMax = 20
const slowLooks = 10
const slowFactor = 5

interface ProjectSource {
  sandboxes: SandboxService
  timings: SessionTimings
  read(): Promise<SessionState>
  apply(input: Input): Promise<void>
}

/** Finds the framework of what an agent makes, and when its preview answers. */
export class ProjectWatch {
  readonly #source: ProjectSource
  readonly preview: PreviewWatch

  constructor(source: ProjectSource) {
    this.#source = source
    this.preview = new PreviewWatch(source.timings.previewPollMs, () => this.#lookForPreview())
  }

  /** Looks at what a turn has left in the sandbox. The framework is undefined when the sandbox does not answer in time. */
  async inspect(): Promise<string | undefined> {
    const { session } = await this.#source.read()
    const { orgId, sandboxId, agentConfig } = session
    const [framework] = await Promise.all([
      detectFramework({ files: this.#source.sandboxes.files, orgId, sandboxId, cwd: agentConfig.cwd }),
      withTimeout(inspectionMs, this.preview.lookNow()),
    ])
    return framework
  }

  /** Records that the preview answers, once. True when nothing is left to look for. */
  async #lookForPreview(): Promise<boolean> {
    const { session, previewReady } = await this.#source.read()
    if (previewReady || session.status === 'ended') return true
    const { orgId, sandboxId } = session
    const ports = await this.#source.sandboxes.exec.ports(orgId, sandboxId)
    if (!ports.includes(previewPort)) return false
    await this.#source.apply({ type: 'preview_ready', sandboxId })
    return (await this.#source.read()).previewReady
  }
}

/**
 * Looks whether the preview answers, for a while after each call of `watch`, until `look` says that this is settled. One look
 * runs at a time.
 */
export class PreviewWatch {
  readonly #pollMs: number
  readonly #look: () => Promise<boolean>
  #timer: NodeJS.Timeout | undefined
  #looksLeft = 0
  #settled = false
  #stopped = false
  #looking = false

  constructor(pollMs: number, look: () => Promise<boolean>) {
    this.#pollMs = pollMs
    this.#look = look
  }

  watch(): void {
    if (this.#stopped) return
    this.#looksLeft = looksMax
    // The session may have another sandbox by now.
    this.#settled = false
    this.#timer ??= this.#arm()
  }

  /** A failure counts as a preview that does not answer yet. */
  async lookNow(): Promise<void> {
    if (this.#stopped || this.#settled || this.#looking) return
    this.#looking = true
    try {
      this.#settled = await this.#look()
    } catch {
      // The next turn looks again.
    } finally {
      this.#looking = false
    }
  }

  /** Until the next `watch`. */
  pause(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#looksLeft = 0
  }

  stop(): void {
    this.#stopped = true
    this.pause()
  }

  #arm(): NodeJS.Timeout {
    const pauseMs = this.#looksLeft > slowLooks ? this.#pollMs : this.#pollMs * slowFactor
    const timer = setTimeout(() => void this.#tick(), pauseMs)
    return timer.unref()
  }

  async #tick(): Promise<void> {
    this.#timer = undefined
    await this.lookNow()
    this.#looksLeft -= 1
    // A `watch` during the look has armed it already.
    if (!this.#settled && this.#looksLeft > 0) this.#timer ??= this.#arm()
  }
}

/** How long the end of a turn waits for its sandbox, which may be slow or hostile. */
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
    (manifest && manifest.size <= manifestBytesMax ? await packageFramework(await read(place, manifest)) : '') ||
    (await pythonFramework(place, files)) ||
    (files.some(({ name }) => name === 'index.html') ? 'static' : '')
  )
}

async function packageFramework(text: string): Promise<string> {
  let manifest: unknown
  try {
    manifest = await parseJson(Buffer.from(text))
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
