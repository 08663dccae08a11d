import { createHmac } from 'node:crypto'
import type { Readable } from 'node:stream'
import { ServiceError } from '../errors.ts'
import { equalSecrets } from '../lib/secret.ts'
import { defined } from '../lib/defined.ts'
import type { DirectoryEntry, FileStat, Guest } from './ports/guest.ts'
import { assertInput, assertPath } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import { assertAlive, type Sandbox } from './sandbox.ts'
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

/** Who owns what is made; by default the user of the sandbox. */
export interface FileOwner {
  user?: string
}

export interface WriteFile extends FileOwner {
  bytesMax?: number
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
    return await this.#use(orgId, sandboxId, path, (guest) => guest.stat(path))
  }

  async write(
    orgId: string,
    sandboxId: string,
    path: string,
    body: Readable,
    { bytesMax, user }: WriteFile = {},
  ): Promise<void> {
    assertInput(!path.endsWith('/'), 'path', 'must name a file, not a directory')
    await this.#use(orgId, sandboxId, path, (guest, sandbox) =>
      guest.writeFile(path, body, defined({ bytesMax, user: user ?? ownerIn(sandbox) })),
    )
  }

  async list(orgId: string, sandboxId: string, path: string): Promise<DirectoryEntry[]> {
    return await this.#use(orgId, sandboxId, path, (guest) => guest.list(path))
  }

  async mkdir(orgId: string, sandboxId: string, path: string, { user }: FileOwner = {}): Promise<void> {
    await this.#use(orgId, sandboxId, path, (guest, sandbox) => guest.mkdir(path, user ?? ownerIn(sandbox)))
  }

  async remove(orgId: string, sandboxId: string, path: string): Promise<void> {
    assertInput(!/^\/+$/.test(path), 'path', 'must not be the root directory')
    await this.#use(orgId, sandboxId, path, (guest) => guest.remove(path))
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

  /** Returns the owner of a signed query. Throws `signature_invalid` or `signature_expired`. */
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

  async #use<Result>(
    orgId: string,
    sandboxId: string,
    path: string,
    work: (guest: Guest, sandbox: Sandbox) => Promise<Result>,
  ): Promise<Result> {
    assertPath(path)
    return await this.#context.lifecycle.use(orgId, sandboxId, work)
  }

  // NUL separates the fields: a path holds any other character.
  #signature(operation: FileOperation, sandboxId: string, path: string, expires: string, maxBytes = ''): string {
    const text = [operation, sandboxId, path, expires, maxBytes].join('\0')
    return createHmac('sha256', this.#context.signingSecret).update(text).digest('hex')
  }
}

function ownerIn({ commandDefaults }: Sandbox): string | undefined {
  return commandDefaults?.user
}
