import { createHmac } from 'node:crypto'
import type { Readable } from 'node:stream'
import { ServiceError } from '../errors.ts'
import { equalSecrets } from '../lib/secret.ts'
import { defined } from '../lib/defined.ts'
import type { DirectoryEntry, FileStat } from './ports/guest.ts'
import { assertInput, assertPath } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import { assertAlive } from './sandbox.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

export type FileOperation = 'upload' | 'download'

export interface SignFile {
  operation: FileOperation
  path: string
  expiresInSeconds: number
  bytesMax?: number
}

/** As read from the URL, unchecked. */
export interface SignedQuery {
  path?: string | undefined
  expires?: string | undefined
  signature?: string | undefined
  maxBytes?: string | undefined
}

export type FileService = Pick<Files, keyof Files>

interface FilesContext {
  store: SandboxStore
  lifecycle: Lifecycle
  signingSecret: string
}

export class Files {
  readonly #context: FilesContext

  constructor(context: FilesContext) {
    this.#context = context
  }

  /** See `Guest.readFile`. The caller destroys the stream, which keeps the sandbox alive. */
  async read(
    orgId: string,
    sandboxId: string,
    path: string,
    range?: { start?: number; end?: number },
  ): Promise<{ stat: FileStat; body: Readable }> {
    assertPath(path)
    await this.#context.lifecycle.get(orgId, sandboxId)
    const release = this.#context.lifecycle.keepAlive(sandboxId)
    try {
      const file = await this.#context.lifecycle.use(orgId, sandboxId, (guest) => guest.readFile(path, range))
      if (file.body.closed) release()
      else file.body.once('close', release)
      return file
    } catch (error) {
      release()
      throw error
    }
  }

  async stat(orgId: string, sandboxId: string, path: string): Promise<FileStat> {
    assertPath(path)
    return await this.#context.lifecycle.use(orgId, sandboxId, (guest) => guest.stat(path))
  }

  async write(orgId: string, sandboxId: string, path: string, body: Readable, bytesMax?: number): Promise<void> {
    assertPath(path)
    assertInput(!path.endsWith('/'), 'path', 'must name a file, not a directory')
    await this.#context.lifecycle.use(orgId, sandboxId, (guest) => guest.writeFile(path, body, defined({ bytesMax })))
  }

  async list(orgId: string, sandboxId: string, path: string): Promise<DirectoryEntry[]> {
    assertPath(path)
    return await this.#context.lifecycle.use(orgId, sandboxId, (guest) => guest.list(path))
  }

  async mkdir(orgId: string, sandboxId: string, path: string): Promise<void> {
    assertPath(path)
    await this.#context.lifecycle.use(orgId, sandboxId, (guest) => guest.mkdir(path))
  }

  async remove(orgId: string, sandboxId: string, path: string): Promise<void> {
    assertPath(path)
    assertInput(!/^\/+$/.test(path), 'path', 'must not be the root directory')
    await this.#context.lifecycle.use(orgId, sandboxId, (guest) => guest.remove(path))
  }

  /** The query string (without `?`) that authorises one operation on one path until `expiresAt`. */
  async sign(orgId: string, sandboxId: string, input: SignFile): Promise<{ query: string; expiresAt: Date }> {
    const { operation, path, expiresInSeconds, bytesMax } = input
    assertPath(path)
    assertAlive(await this.#context.lifecycle.get(orgId, sandboxId))
    // Rounded up: a URL lives for the requested time or a moment longer.
    const expires = String(Math.ceil(Date.now() / 1000) + expiresInSeconds)
    const maxBytes = bytesMax === undefined ? undefined : String(bytesMax)
    const query = new URLSearchParams({ path, expires })
    if (maxBytes !== undefined) query.set('maxBytes', maxBytes)
    query.set('signature', this.#signature(operation, sandboxId, path, expires, maxBytes))
    return { query: query.toString(), expiresAt: new Date(Number(expires) * 1000) }
  }

  /**
   * Checks a signed query and returns its owner. Throws `signature_invalid` or `signature_expired`. `bytesMax` bounds an upload.
   */
  async verify(
    operation: FileOperation,
    sandboxId: string,
    query: SignedQuery,
  ): Promise<{ orgId: string; bytesMax?: number }> {
    const { path, expires, signature, maxBytes } = query
    if (path === undefined || expires === undefined || signature === undefined) {
      throw new ServiceError('signature_invalid', 'the URL is not signed: path, expires and signature must be given')
    }
    // The signature first: never read the rest of a forged URL.
    if (!equalSecrets(signature, this.#signature(operation, sandboxId, path, expires, maxBytes))) {
      throw new ServiceError('signature_invalid', 'the signature does not match the URL')
    }
    if (Number(expires) * 1000 <= Date.now()) throw new ServiceError('signature_expired', 'the URL has expired')
    const sandbox = await this.#context.store.sandbox(sandboxId)
    if (!sandbox) throw new ServiceError('not_found', `no sandbox ${sandboxId}`)
    const bytesMax = maxBytes === undefined ? undefined : Number(maxBytes)
    return { orgId: sandbox.orgId, ...defined({ bytesMax }) }
  }

  // NUL separates the fields: a path holds any other character.
  #signature(operation: FileOperation, sandboxId: string, path: string, expires: string, maxBytes = ''): string {
    const text = [operation, sandboxId, path, expires, maxBytes].join('\0')
    return createHmac('sha256', this.#context.signingSecret).update(text).digest('hex')
  }
}
