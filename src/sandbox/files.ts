import type { Readable } from 'node:stream'
import { isServiceError, ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { type SignedParameters, UrlSigner } from '../lib/signed-url.ts'
import type {
  DirectoryEntry,
  FileChange,
  FileEntry,
  FileStat,
  Guest,
  PackEntry,
  PackOptions,
  Unpacked,
  UnpackOptions,
} from './ports/guest.ts'
import { assertInput, assertPath, assertSigned, assertUser } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import { assertAlive, type Sandbox } from './sandbox.ts'
import { assertDiskTakesData, type RuntimeDriver } from './ports/runtime-driver.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

export type FileOperation = 'upload' | 'download'

export interface SignFile {
  operation: FileOperation
  path: string
  expiresInSeconds: number
  bytesMax?: number
  /** The URL has the rights of this user. */
  user?: string
}

export interface SignedQuery extends SignedParameters {
  path?: string | undefined
  user?: string | undefined
}

/** The user whose rights apply and who owns new files. Default: the user of the sandbox. */
export interface FileUser {
  user?: string
}

export interface ReadFile extends FileUser {
  start?: number
  end?: number
}

export interface WriteFile extends FileUser {
  bytesMax?: number
}

export interface MoveFile extends FileUser {
  /** Replaces what is at the new path, a folder only if it is empty. */
  overwrite?: boolean
}

export interface WatchFiles extends FileUser {
  recursive?: boolean
  signal: AbortSignal
}

export type FileService = Pick<Files, keyof Files>

interface FilesContext {
  store: SandboxStore
  driver: Pick<RuntimeDriver, 'disk'>
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
    options: ReadFile = {},
  ): Promise<{ stat: FileStat; body: Readable }> {
    assertPath(path)
    assertFileUser(options)
    return await this.#context.lifecycle.useOn(orgId, sandboxId, async (guest, sandbox, release) => {
      const file = await guest.readFile(path, { ...options, ...userOf(sandbox, options) })
      if (file.body.closed) release()
      else file.body.once('close', release)
      return file
    })
  }

  async stat(orgId: string, sandboxId: string, path: string, options: FileUser = {}): Promise<FileStat> {
    return await this.#use(orgId, sandboxId, path, options, (guest, user) => guest.stat(path, user))
  }

  async write(
    orgId: string,
    sandboxId: string,
    path: string,
    body: Readable,
    { bytesMax, ...options }: WriteFile = {},
  ): Promise<void> {
    assertInput(!path.endsWith('/'), 'path', 'must name a file, not a directory')
    assertDiskTakesData(this.#context.driver)
    await this.#use(orgId, sandboxId, path, options, (guest, user) =>
      guest.writeFile(path, body, defined({ bytesMax, user })),
    )
  }

  async list(orgId: string, sandboxId: string, path: string, options: FileUser = {}): Promise<DirectoryEntry[]> {
    return await this.#use(orgId, sandboxId, path, options, (guest, user) => guest.list(path, user))
  }

  async mkdir(orgId: string, sandboxId: string, path: string, options: FileUser = {}): Promise<void> {
    await this.#use(orgId, sandboxId, path, options, (guest, user) => guest.mkdir(path, user))
  }

  async remove(orgId: string, sandboxId: string, path: string, options: FileUser = {}): Promise<void> {
    assertInput(!/^\/+$/.test(path), 'path', 'must not be the root directory')
    await this.#use(orgId, sandboxId, path, options, (guest, user) => guest.remove(path, user))
  }

  /** The entry itself, a link too. */
  async inspect(orgId: string, sandboxId: string, path: string, options: FileUser = {}): Promise<FileEntry> {
    return await this.#use(orgId, sandboxId, path, options, (guest, user) => guest.inspect(path, user))
  }

  async move(
    orgId: string,
    sandboxId: string,
    from: string,
    to: string,
    { overwrite = false, ...options }: MoveFile = {},
  ): Promise<void> {
    assertPath(from, 'from')
    assertPath(to, 'to')
    await this.#use(orgId, sandboxId, from, options, (guest, user) =>
      guest.move(from, to, { overwrite, ...defined({ user }) }),
    )
  }

  /** See `Guest.pack`. The caller destroys the stream, which keeps the sandbox alive. */
  async pack(
    orgId: string,
    sandboxId: string,
    entries: readonly PackEntry[],
    options: PackOptions = {},
  ): Promise<Readable> {
    for (const { path } of entries) assertPath(path)
    for (const path of options.skip ?? []) assertPath(path)
    return await this.#context.lifecycle.useOn(orgId, sandboxId, async (guest, _sandbox, release) => {
      const tar = await guest.pack(entries, options)
      if (tar.closed) release()
      else tar.once('close', release)
      return tar
    })
  }

  /** See `Guest.unpack`. */
  async unpack(
    orgId: string,
    sandboxId: string,
    tar: AsyncIterable<Uint8Array>,
    options: UnpackOptions,
  ): Promise<Unpacked> {
    assertDiskTakesData(this.#context.driver)
    return await this.#use(orgId, sandboxId, options.target, {}, (guest) => guest.unpack(tar, options))
  }

  /**
   * Follows what changes in a folder (`Guest.watch`). The sandbox wakes for it, but it is no activity, so that a watch keeps nobody awake.
   * The result ends with `ended` when the sandbox hibernates or stops.
   */
  async watch(
    orgId: string,
    sandboxId: string,
    path: string,
    { signal, recursive = false, ...options }: WatchFiles,
  ): Promise<AsyncIterable<readonly FileChange[]>> {
    const changes = await this.#use(orgId, sandboxId, path, options, (guest, user) =>
      guest.watch(path, { recursive, signal, ...defined({ user }) }),
    )
    return this.#untilStopped(orgId, sandboxId, changes)
  }

  async *#untilStopped(
    orgId: string,
    sandboxId: string,
    changes: AsyncIterable<FileChange[]>,
  ): AsyncGenerator<readonly FileChange[]> {
    try {
      yield* changes
    } catch (error) {
      if (!isServiceError(error, 'unavailable')) throw error
      const { status } = await this.#context.lifecycle.read(sandboxId, orgId)
      if (status !== 'stopped' && status !== 'error') throw error
      yield [{ type: 'ended', reason: 'stopped' }]
    }
  }

  /** The query string (without `?`) that authorises one operation on one path until `expiresAt`. */
  async sign(orgId: string, sandboxId: string, input: SignFile): Promise<{ query: string; expiresAt: Date }> {
    const { operation, path, expiresInSeconds, bytesMax, user } = input
    assertPath(path)
    assertInput(path.isWellFormed(), 'path', 'must be well-formed text')
    assertFileUser(input)
    assertAlive(await this.#context.lifecycle.read(sandboxId, orgId))
    const options = { shown: { path, ...defined({ user }) }, expiresInSeconds, ...defined({ bytesMax }) }
    return this.#signer.sign(claimsOf(operation, sandboxId, path, user), options)
  }

  /** Returns the owner of a signed query. Throws `signature_invalid` or `signature_expired`. */
  async verify(
    operation: FileOperation,
    sandboxId: string,
    query: SignedQuery,
  ): Promise<{ orgId: string; bytesMax?: number }> {
    const { path, maxBytes, user } = query
    const claims = path === undefined ? undefined : claimsOf(operation, sandboxId, path, user)
    assertSigned(claims === undefined ? 'signature_invalid' : this.#signer.faultOf(claims, query))
    const sandbox = await this.#context.store.sandbox(sandboxId)
    if (!sandbox) throw new ServiceError('not_found', `no sandbox ${sandboxId}`)
    const bytesMax = maxBytes === undefined ? undefined : Number(maxBytes)
    return { orgId: sandbox.orgId, ...defined({ bytesMax }) }
  }

  async #use<Result>(
    orgId: string,
    sandboxId: string,
    path: string,
    options: FileUser,
    work: (guest: Guest, user: string | undefined) => Promise<Result>,
  ): Promise<Result> {
    assertPath(path)
    assertFileUser(options)
    try {
      return await this.#context.lifecycle.use(orgId, sandboxId, (guest, sandbox) =>
        work(guest, userOf(sandbox, options).user).catch(namingPath),
      )
    } catch (error) {
      // The guest cannot tell a full pool from a full disk of its own.
      if (isServiceError(error, 'disk_full')) assertDiskTakesData(this.#context.driver)
      throw error
    }
  }
}

/** A client can tell a missing file from a missing sandbox. */
function namingPath(error: unknown): never {
  if (!isServiceError(error, 'not_found')) throw error
  throw new ServiceError('not_found', error.message, { cause: error, details: { field: 'path' } })
}

/** The signed claims. A user adds one, so the signature of a URL without a user never fits one with a user. */
function claimsOf(operation: FileOperation, sandboxId: string, path: string, user: string | undefined): string[] {
  return [operation, sandboxId, path, ...(user === undefined ? [] : [user])]
}

function assertFileUser({ user }: FileUser): void {
  if (user !== undefined) assertUser(user)
}

function userOf({ commandDefaults }: Sandbox, { user = commandDefaults?.user }: FileUser): FileUser {
  return defined({ user })
}
