import type { Readable } from 'node:stream'
import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { type SignedParameters, UrlSigner } from '../lib/signed-url.ts'
import type { DirectoryEntry, FileStat, Guest } from './ports/guest.ts'
import { assertInput, assertPath, assertSigned } from './input.ts'
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

export interface SignedQuery extends SignedParameters {
  path?: string | undefined
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
  readonly #signer: UrlSigner

  constructor(context: FilesContext) {
    this.#context = context
    this.#signer = new UrlSigner(context.signingSecret)
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
    const options = { shown: { path }, expiresInSeconds, ...defined({ bytesMax }) }
    return this.#signer.sign([operation, sandboxId, path], options)
  }

  /** Returns the owner of a signed query. Throws `signature_invalid` or `signature_expired`. */
  async verify(
    operation: FileOperation,
    sandboxId: string,
    query: SignedQuery,
  ): Promise<{ orgId: string; bytesMax?: number }> {
    const { path, maxBytes } = query
    assertSigned(path === undefined ? 'signature_invalid' : this.#signer.faultOf([operation, sandboxId, path], query))
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
}

function ownerIn({ commandDefaults }: Sandbox): string | undefined {
  return commandDefaults?.user
}
