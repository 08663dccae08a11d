import { randomBytes } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import type { IncomingHttpHeaders } from 'node:http'
import { join } from 'node:path'
import { answerWithFile, keptFile, type KeptFile, wantsPage } from './kept-files.ts'
import type { Answer } from './route.ts'

/** What the build has where the nonce of an answer belongs (`html.cspNonce` of its configuration). */
const noncePlace = 'NONCE_OF_THIS_ANSWER'
/** Bounds what is kept in memory of a build. */
const buildBytesMax = 32 * 1024 * 1024
const nonceBytes = 16
/** The build names its files by their contents, so one never changes. */
const forever = 'public, max-age=31536000, immutable'

/** First segments of the paths of its pages. The page itself knows the rest. */
const pages: ReadonlySet<string> = new Set([
  ...['sandboxes', 'sessions', 'images', 'volumes', 'webhooks', 'secrets', 'usage', 'audit', 'keys', 'organisations'],
  ...['host', 'checkpoints', 'capsules', 'sign-in'],
])

interface Asked {
  method: string
  /** Path and query. */
  url: string
  headers: IncomingHttpHeaders
}

/**
 * The page of this server: its `index.html` and the files that it loads, in memory as they were at the start. A build that is made meanwhile is served
 * after the next start, together with the API that it was made for: nobody gets the page of the one with files of the other. No path of a
 * request opens a file.
 */
export class Dashboard {
  readonly #index: string
  /** By path. */
  readonly #files: ReadonlyMap<string, KeptFile>
  readonly #previewUrl: string

  constructor(index: string, files: ReadonlyMap<string, KeptFile>, previewUrl: string) {
    this.#index = index
    this.#files = files
    this.#previewUrl = previewUrl
  }

  /** The answer with the page, and with a nonce of its own for the style elements that its libraries make. */
  page(): Answer {
    const nonce = randomBytes(nonceBytes).toString('base64url')
    const headers = {
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-store',
      vary: 'accept',
      'content-security-policy': policyOf(this.#previewUrl, nonce),
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
    }
    return { statusCode: 200, body: this.#index.replaceAll(noncePlace, nonce), headers }
  }

  /** The answer to a request that is for a page or a file of the dashboard; undefined for others. */
  async answer({ method, url, headers }: Asked): Promise<Answer | undefined> {
    if (method !== 'GET' && method !== 'HEAD') return undefined
    const [path = ''] = url.split('?', 1)
    const file = this.#files.get(path)
    if (file !== undefined) return await answerWithFile(file, headers, { headers: { 'cache-control': forever } })
    const [, segment = ''] = path.split('/', 2)
    return pages.has(segment) && wantsPage(headers) ? this.page() : undefined
  }
}

/** Reads a build. Undefined when there is none. Throws for one that is too large or not whole, and what the file system throws. */
export async function readDashboard(dir: string, previewUrl: string): Promise<Dashboard | undefined> {
  const index = await readFile(join(dir, 'index.html')).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  if (index === undefined) return undefined
  const files = new Map<string, KeptFile>()
  let total = index.length
  for (const entry of await readdir(join(dir, 'assets'), { withFileTypes: true })) {
    // A link would lead out of the build.
    if (!entry.isFile()) continue
    const bytes = await readFile(join(dir, 'assets', entry.name))
    total += bytes.length
    if (total > buildBytesMax) throw new Error(`the dashboard in ${dir} is larger than ${buildBytesMax} bytes`)
    files.set(`/assets/${entry.name}`, keptFile(entry.name, bytes))
  }
  const [missing] = namedIn(index).filter((path) => !files.has(path))
  if (missing !== undefined) throw new Error(`the dashboard in ${dir} lacks ${missing}, which its page loads`)
  return new Dashboard(index.toString(), files, previewUrl)
}

function namedIn(page: Buffer): string[] {
  return [...page.toString().matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map(([, path = '']) => path)
}

/** Scripts, styles and calls of its own origin alone, and frames of previews. */
function policyOf(previewUrl: string, nonce: string): string {
  const { protocol, host } = new URL(previewUrl)
  return [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self' 'nonce-${nonce}'`,
    "img-src 'self' data: blob:",
    "font-src 'self'",
    "connect-src 'self'",
    "worker-src 'self'",
    `frame-src ${protocol}//*.${host}`,
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ')
}
