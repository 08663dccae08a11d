import type { IncomingHttpHeaders } from 'node:http'
import { readdir, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { ServiceError } from '../../errors.ts'
import { htmlPage, pagePolicy, scriptedPolicy } from '../../lib/html.ts'
import { answerWithFile, keptFile, type KeptFile, wantsPage } from './kept-files.ts'
import type { Answer } from './route.ts'

/** Bounds what is kept in memory of a build. */
const buildBytesMax = 16 * 1024 * 1024
/** A reader gets what an upgrade has changed. */
const cacheControl = 'no-cache'

/** Everything that a page loads or calls is of its own origin, in files of its own. */
const docsPolicy = scriptedPolicy("'self'")

interface Pages {
  /** By path. */
  files: ReadonlyMap<string, KeptFile>
  missing: KeptFile
}

const read = new Map<string, Promise<Pages | undefined>>()

/**
 * The answer to a request for a path at or below `/docs`. `dir` has the pages that setup builds; the first request reads all of them, and no path of a
 * request opens a file. Throws `not_found` for an address that has none, but answers a browser with a page that says so.
 */
export async function docsAnswer(dir: string, { path, headers }: Asked): Promise<Answer> {
  const pages = await pagesOf(dir)
  if (pages === undefined) return notBuilt(headers)
  const file = pages.files.get(path === '/docs/' ? '/docs' : path)
  if (file !== undefined) return await answerWithFile(file, headers, { headers: headersOf(file) })
  const meant = path.replace(/(?:\.md|\.html|\/)$/, '')
  if (meant !== path && (pages.files.has(meant) || meant === '/docs/api')) {
    return { statusCode: 308, headers: { location: meant, 'cache-control': cacheControl } }
  }
  if (!wantsPage(headers)) throw new ServiceError('not_found', `there is no page ${path.slice(0, 200)}`)
  const { missing } = pages
  const vary = 'accept, accept-encoding'
  return await answerWithFile(missing, headers, { statusCode: 404, headers: { ...headersOf(missing), vary } })
}

interface Asked {
  path: string
  headers: IncomingHttpHeaders
}

function headersOf({ type }: KeptFile): Record<string, string> {
  const common = { 'cache-control': cacheControl }
  if (!type.startsWith('text/html')) return common
  return { ...common, 'content-security-policy': docsPolicy, 'referrer-policy': 'no-referrer' }
}

/** A build is read once; one that is not there is looked for again. */
async function pagesOf(dir: string): Promise<Pages | undefined> {
  let pages = read.get(dir)
  if (pages === undefined) {
    pages = readPages(dir)
    read.set(dir, pages)
  }
  const forget = () => read.delete(dir)
  const found = await pages.catch((error: unknown) => {
    forget()
    throw error
  })
  if (found === undefined) forget()
  return found
}

async function readPages(dir: string): Promise<Pages | undefined> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  const files = new Map<string, KeptFile>()
  let total = 0
  for (const entry of entries) {
    // A link would lead out of the build.
    if (!entry.isFile()) continue
    const file = join(entry.parentPath, entry.name)
    const bytes = await readFile(file)
    total += bytes.length
    if (total > buildBytesMax) throw new Error(`the documentation in ${dir} is larger than ${buildBytesMax} bytes`)
    files.set(pathOf(relative(dir, file)), keptFile(entry.name, bytes))
  }
  const missing = files.get('/docs/404')
  files.delete('/docs/404')
  return missing && { files, missing }
}

function pathOf(name: string): string {
  return name === 'index.html' ? '/docs' : `/docs/${name.replace(/\.html$/, '')}`
}

function notBuilt(headers: IncomingHttpHeaders): Answer {
  const message =
    'this server has no pages of its documentation: `npm run setup` builds them; the reference is at /docs/api'
  if (!wantsPage(headers)) throw new ServiceError('not_found', message)
  const body = htmlPage({
    title: 'Atoll documentation',
    style: 'main{max-width:46rem;margin:0 auto;padding:12vh 1.5rem 4rem}',
    body: `<main><h1>The documentation has not been built</h1>
<p><code>npm run setup</code> builds it; then load this page again. In the repository it is the folder <code>docs/</code>.</p>
<p><a href="/docs/api">The reference of the API</a> is here without it.</p></main>`,
  })
  return {
    statusCode: 404,
    body,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': pagePolicy,
      'cache-control': 'no-store',
      vary: 'accept',
    },
  }
}
