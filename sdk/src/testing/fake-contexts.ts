import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { TestContext } from 'node:test'
import { createZstdDecompress } from 'node:zlib'
import { entriesOf } from '../../../src/protocol/tar-reader.ts'
import { Atoll, type AtollOptions } from '../index.ts'

interface ToldFile {
  path?: string
  pathBase64?: string
  type: string
  mode: number
  digest?: string
  size?: number
  target?: string
}

/** What a build is answered with: events, the last one `result` or `error`. */
export type BuildEvents = readonly (readonly [event: string, data: Record<string, unknown>])[]

const built: BuildEvents = [['result', { id: 'img-1', status: 'ready' }]]

/** A server that keeps contexts by content, builds nothing, and notes what it was sent. */
export class FakeContexts {
  /** Names of the members of each archive. */
  readonly archives: string[][] = []
  /** Entries of each context. */
  readonly told: ToldFile[][] = []
  /** The build that each context was for. */
  readonly intended: unknown[] = []
  /** Bodies of builds. */
  readonly builds: { query: string; body: Record<string, unknown> }[] = []
  /** Bytes of all archives, as they travelled. */
  bytes = 0
  url = ''
  client = new Atoll()
  /** Called with each archive before it is read. */
  beforeArchive: (request: IncomingMessage) => unknown = () => undefined
  /** Called with each member when it is whole. */
  afterMember: (name: string, request: IncomingMessage) => unknown = () => undefined
  /** Whether the next archive is one with a file that has changed. */
  refuses: () => boolean = () => false
  events: BuildEvents = built
  /** Without it a build goes on behind its events; `left` settles when its client leaves. */
  endsBuilds = true
  readonly #left = Promise.withResolvers<void>()
  readonly left = this.#left.promise
  readonly #kept = new Set<string>()
  #files: ToldFile[] = []

  static async start(t: TestContext, options: AtollOptions = {}): Promise<FakeContexts> {
    const fake = new FakeContexts()
    const server = createServer((request, response) => {
      fake.#answer(request, response).catch(() => response.destroy())
    })
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve)
    })
    t.after(() => {
      server.close()
      server.closeAllConnections()
    })
    fake.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    fake.client = new Atoll({ url: fake.url, apiKey: 'key', ...options })
    return fake
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method, url = '' } = request
    if (method === 'PUT') return await this.#take(request, response)
    const body = JSON.parse(await text(request)) as Record<string, unknown>
    if (url === '/api/images/contexts') {
      this.#files = body['files'] as ToldFile[]
      this.told.push(this.#files)
      this.intended.push(body['image'])
      return sendJson(response, 201, { id: 'ctx-1', missing: this.#missing(), uploadUrl: 'http://nowhere.invalid' })
    }
    this.builds.push({ query: new URL(url, this.url).search, body })
    if (!request.headers.accept?.includes('event-stream'))
      return sendJson(response, 202, { id: 'img-1', status: 'building' })
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const [event, data] of this.events) response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)
    if (this.endsBuilds) response.end()
    else response.on('close', this.#left.resolve)
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    await this.beforeArchive(request)
    if (this.refuses()) {
      request.resume()
      return sendJson(response, 400, { error: 'a changed', code: 'invalid_request', path: 'a' })
    }
    const names: string[] = []
    this.archives.push(names)
    request.on('data', (piece: Buffer) => (this.bytes += piece.length))
    const isZipped = request.headers.host?.startsWith('127.') !== true
    const digests = new Map(this.#files.map((file) => [pathOf(file), file.digest]))
    for await (const { name, body } of entriesOf(isZipped ? request.pipe(createZstdDecompress()) : request)) {
      const hash = createHash('sha256')
      for await (const piece of body) hash.update(piece)
      const digest = `sha256:${hash.digest('hex')}`
      if (digest !== digests.get(name))
        return sendJson(response, 400, { error: `${name} changed`, code: 'invalid_request', path: name })
      this.#kept.add(digest)
      names.push(name)
      await this.afterMember(name, request)
    }
    sendJson(response, 200, { id: 'ctx-1', missing: this.#missing(), ignored: 0 })
  }

  #missing(): string[] {
    const digests = this.#files.flatMap(({ digest }) => digest ?? [])
    return [...new Set(digests)].filter((digest) => !this.#kept.has(digest))
  }
}

function pathOf({ path, pathBase64 = '' }: ToldFile): string {
  const bytes = path === undefined ? Buffer.from(pathBase64, 'base64') : Buffer.from(path)
  return bytes.toString('latin1')
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}
