import { createHmac } from 'node:crypto'
import type { Readable } from 'node:stream'
import { ServiceError } from '../errors.ts'
import { equalSecrets } from '../lib/secret.ts'
import type { FileOperation, FileService, SignedQuery, SignFile } from './api.ts'
import type { DirectoryEntry, FileStat } from './ports/guest.ts'
import { demand, demandInteger, demandPath } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import { demandAlive } from './sandbox.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

const expiresInSecondsDefault = 3600
const expiresInSecondsMax = 86_400

interface FilesDeps {
  store: SandboxStore
  lifecycle: Lifecycle
  signingSecret: string
}

export class Files implements FileService {
  readonly #deps: FilesDeps

  constructor(deps: FilesDeps) {
    this.#deps = deps
  }

  async read(orgId: string, sandboxId: string, path: string, range?: { start?: number; end?: number }) {
    demandPath(path)
    await this.#deps.lifecycle.get(orgId, sandboxId)
    const release = this.#deps.lifecycle.hold(sandboxId)
    try {
      const file = await this.#deps.lifecycle.use(orgId, sandboxId, (guest) => guest.readFile(path, range))
      if (file.body.closed) release()
      else file.body.once('close', release)
      return file
    } catch (error) {
      release()
      throw error
    }
  }

  async stat(orgId: string, sandboxId: string, path: string): Promise<FileStat> {
    demandPath(path)
    return await this.#deps.lifecycle.use(orgId, sandboxId, (guest) => guest.stat(path))
  }

  async write(orgId: string, sandboxId: string, path: string, body: Readable, bytesMax?: number): Promise<void> {
    demandPath(path)
    demand(!path.endsWith('/'), 'path', 'must name a file, not a directory')
    const options = bytesMax === undefined ? {} : { bytesMax }
    await this.#deps.lifecycle.use(orgId, sandboxId, (guest) => guest.writeFile(path, body, options))
  }

  async list(orgId: string, sandboxId: string, path: string): Promise<DirectoryEntry[]> {
    demandPath(path)
    return await this.#deps.lifecycle.use(orgId, sandboxId, (guest) => guest.list(path))
  }

  async mkdir(orgId: string, sandboxId: string, path: string): Promise<void> {
    demandPath(path)
    await this.#deps.lifecycle.use(orgId, sandboxId, (guest) => guest.mkdir(path))
  }

  async remove(orgId: string, sandboxId: string, path: string): Promise<void> {
    demandPath(path)
    demand(!/^\/+$/.test(path), 'path', 'must not be the root directory')
    await this.#deps.lifecycle.use(orgId, sandboxId, (guest) => guest.remove(path))
  }

  async sign(orgId: string, sandboxId: string, input: SignFile): Promise<{ query: string; expiresAt: Date }> {
    const { operation, path, expiresInSeconds = expiresInSecondsDefault, bytesMax } = input
    demandPath(path)
    demandInteger(expiresInSeconds, 'expiresIn', 1, expiresInSecondsMax)
    if (bytesMax !== undefined) demandInteger(bytesMax, 'maxBytes', 1, Number.MAX_SAFE_INTEGER)
    demandAlive(await this.#deps.lifecycle.get(orgId, sandboxId))
    // Rounded up: a URL lives as long as was asked for, or a moment longer.
    const expires = String(Math.ceil(Date.now() / 1000) + expiresInSeconds)
    const maxBytes = bytesMax === undefined ? undefined : String(bytesMax)
    const query = new URLSearchParams({ path, expires })
    if (maxBytes !== undefined) query.set('maxBytes', maxBytes)
    query.set('signature', this.#signature(operation, sandboxId, path, expires, maxBytes))
    return { query: query.toString(), expiresAt: new Date(Number(expires) * 1000) }
  }

  async verify(operation: FileOperation, sandboxId: string, query: SignedQuery) {
    const { path, expires, signature, maxBytes } = query
    if (path === undefined || expires === undefined || signature === undefined) {
      throw new ServiceError('signature_invalid', 'the URL is not signed: path, expires and signature must be given')
    }
    // The signature first: nothing of an unsigned URL is worth reading.
    if (!equalSecrets(signature, this.#signature(operation, sandboxId, path, expires, maxBytes))) {
      throw new ServiceError('signature_invalid', 'the signature does not match the URL')
    }
    if (Number(expires) * 1000 <= Date.now()) throw new ServiceError('signature_expired', 'the URL has expired')
    const sandbox = await this.#deps.store.sandbox(sandboxId)
    if (!sandbox) throw new ServiceError('not_found', `no sandbox ${sandboxId}`)
    return { orgId: sandbox.orgId, ...(maxBytes === undefined ? {} : { bytesMax: Number(maxBytes) }) }
  }

  // A path may hold any character but NUL, which therefore keeps the fields apart.
  #signature(operation: FileOperation, sandboxId: string, path: string, expires: string, maxBytes = ''): string {
    const text = [operation, sandboxId, path, expires, maxBytes].join('\0')
    return createHmac('sha256', this.#deps.signingSecret).update(text).digest('hex')
  }
}
