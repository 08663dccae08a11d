/** Registries on the loopback: Debian's `docker-registry`, and one that can be slow, wrong, or ask for a password. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync } from 'node:fs'
import { rm, writeFile } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { freePort } from './listen.ts'
import { digestOf, type TestImage } from './oci-image.ts'

export const testUser = { username: 'tester', password: 'secret-of-the-test' }
/** bcrypt of that password. */
const testUserLine = 'tester:$2b$04$LKlAX9OP3/U9LdHgyQs.IOJzfeTM6PrgswZ5.oamBxh78jvl8Gqsi\n'

export interface DebianRegistry extends AsyncDisposable {
  host: string
}

/** `docker-registry`, which wants the credentials of `testUser`. */
export async function startDebianRegistry(): Promise<DebianRegistry> {
  const folder = mkdtempSync(`${tmpdir()}/atoll-registry-`)
  await writeFile(`${folder}/users`, testUserLine)
  const port = await freePort()
  const config = {
    version: 0.1,
    log: { level: 'error', accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: `${folder}/data` } },
    auth: { htpasswd: { realm: 'test', path: `${folder}/users` } },
    http: { addr: `127.0.0.1:${port}`, secret: 'x' },
  }
  await writeFile(`${folder}/config.yml`, JSON.stringify(config))
  const child = spawn('docker-registry', ['serve', `${folder}/config.yml`], { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()))
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`docker-registry (of the Debian package) ended with ${String(code)}: ${said}`)
  })
  ended.catch(() => undefined)
  await Promise.race([ended, answers(port)])
  return {
    host: `127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGKILL')
      await ended.catch(() => undefined)
      await rm(folder, { recursive: true, force: true })
    },
  }
}

export interface TestRegistry extends AsyncDisposable {
  host: string
  /** By `repository:tag`. */
  tags: Map<string, Buffer>
  blobs: Map<string, Buffer>
  /** Paths that were asked for. */
  requests: string[]
  /** Says what becomes of a request in place of the right answer; `true` when it has answered. */
  interfere: (path: string, response: ServerResponse) => boolean
  add(name: string, image: TestImage): void
}

export async function startTestRegistry(): Promise<TestRegistry> {
  const server = createServer((request, response) => {
    const path = request.url ?? ''
    registry.requests.push(path)
    if (registry.interfere(path, response)) return
    const [, repository = '', kind, reference = ''] = /^\/v2\/(.+)\/(manifests|blobs)\/([^/]+)$/.exec(path) ?? []
    if (path === '/v2/') return void response.end('{}')
    const found = kind === 'manifests' ? manifestOf(repository, reference) : registry.blobs.get(reference)
    if (found === undefined) {
      response.writeHead(404, { 'content-type': 'application/json' })
      return void response.end('{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}')
    }
    const isManifest = kind === 'manifests'
    const { mediaType } = isManifest
      ? (JSON.parse(found.toString()) as { mediaType: string })
      : { mediaType: undefined }
    response.writeHead(200, {
      'content-type': mediaType ?? 'application/octet-stream',
      'content-length': found.length,
      'docker-content-digest': isManifest ? digestOf(found) : reference,
    })
    response.end(request.method === 'HEAD' ? undefined : found)
  })
  const manifestOf = (repository: string, reference: string) =>
    reference.startsWith('sha256:')
      ? [...registry.tags.values(), ...registry.blobs.values()].find((bytes) => digestOf(bytes) === reference)
      : registry.tags.get(`${repository}:${reference}`)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const registry: TestRegistry = {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    tags: new Map(),
    blobs: new Map(),
    requests: [],
    interfere: () => false,
    add: (name, image) => {
      registry.tags.set(name, image.manifest)
      for (const [digest, bytes] of image.blobs) registry.blobs.set(digest, bytes)
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return registry
}

async function answers(port: number): Promise<void> {
  for (;;) {
    const response = await fetch(`http://127.0.0.1:${port}/v2/`).catch(() => undefined)
    if (response !== undefined) return
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
