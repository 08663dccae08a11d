import { mkdir, rename, rm, stat, unlink, utimes } from 'node:fs/promises'
import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import { TimeSlice } from '../lib/async/time-slice.ts'
import { namesIn, unlessMissing } from '../lib/missing-files.ts'
import { UrlSigner, type SignedParameters } from '../lib/signed-url.ts'
import { syncFolder } from '../lib/sync-folder.ts'
import type { ContextFile } from '../protocol/http/images.ts'
import { assertSigned } from '../sandbox/index.ts'
import { Blobs } from './contexts/blobs.ts'
import type { Context } from './contexts/context.ts'
import { DigestSet } from './contexts/digest-set.ts'
import { type Listing, listingOf, shownKey } from './contexts/entries.ts'
import { HeldContext } from './contexts/held-context.ts'
import { readDigests, readHead, writeIndex } from './contexts/index-file.ts'
import { digestBytes, type Tree } from './contexts/tree.ts'
import { Trees } from './contexts/trees.ts'
import { asDiskError, receive } from './contexts/upload.ts'
import type { ImageLimits } from './image.ts'

export interface ContextDeps {
  /** The folder for contexts; made if absent. */
  contextDir: string
  limits: Pick<ImageLimits, 'contextFilesMax' | 'contextBytesMax' | 'contextsMax' | 'contextsBytesMax'>
  signingSecret: string
  /** Throws while the disk of the server takes no more data. */
  assertDiskTakesData: () => void
}

export interface ContextState {
  id: string
  /** `sha256:…` of contents that the server lacks. Empty: builds may use it. */
  missing: string[]
}

/** An organisation that makes more contexts than it may have loses the oldest, but none that was used in this time. */
const evictableMs = 10 * 60_000
/** Of a file in an archive, beside its content. */
const archiveBytesPerFile = 4096
/** Of the contexts that are sent to at one time, and what an upload counts beside the entries of its context. */
const uploadEntriesMax = 2_000_000
const uploadEntriesMin = 5000
const uploadSeconds = 86_400
const idPattern = /^ctx-[a-z0-9]{16}$/

/**
 * Files that clients send for builds: for each organisation a folder with `indexes/ID` (`contexts/index-file.ts`), `files/AB/SHA256`
 * (`contexts/blobs.ts`) and `drafts`. Contexts of one organisation share contents; nothing is shared between organisations, so that none learns
 * what another has.
 *
 * A context is made incomplete, gets its contents, and goes when nobody has used it for a day: the time of its index is that of its last use.
 * Whoever reads it or sends to it holds it. Contents go with the last index that names them; what adds or removes an index, or removes contents,
 * has the lock of the organisation.
 */
export class Contexts {
  readonly #deps: ContextDeps
  readonly #signer: UrlSigner
  readonly #locks = new KeyedMutex()
  readonly #blobs = new Map<string, Blobs>()
  /** How many hold a context, by the path of its index. */
  readonly #holds = new Map<string, number>()
  /** Organisations with contents that no index names, perhaps. */
  readonly #littered = new Set<string>()
  readonly #trees = new Trees()
  // Each has an index in memory.
  readonly #creations = new Semaphore({ permits: 4, permitsPerKey: 2 })
  readonly #uploads = new Semaphore({ permits: uploadEntriesMax, permitsPerKey: uploadEntriesMax / 4 })

  constructor(deps: ContextDeps) {
    this.#deps = deps
    this.#signer = new UrlSigner(deps.signingSecret)
  }

  /** Removes what a crash has left. Nothing else of it runs meanwhile. */
  async start(): Promise<void> {
    for (const orgId of await namesIn(this.#deps.contextDir)) {
      if ((await namesIn(this.#indexes(orgId))).length === 0) {
        await rm(this.#folder(orgId), { recursive: true, force: true })
        continue
      }
      await this.#blobsOf(orgId).removeDrafts()
      this.#littered.add(orgId)
    }
  }

  /** Equal files make the same context. Throws `invalid_request` with field and path, `quota_exceeded`, `no_capacity`, `disk_full`. */
  async create(orgId: string, files: readonly ContextFile[], signal?: AbortSignal): Promise<ContextState> {
    return await this.#creations.use(
      async () => {
        this.#deps.assertDiskTakesData()
        const listing = await listingOf(files, this.#deps.limits)
        return await this.#write(orgId, listing).catch((error: unknown) => {
          throw asDiskError(error)
        })
      },
      { key: orgId, signal },
    )
  }

  /**
   * Takes contents from an archive, by the paths of the context; `ignored` of its entries were none. Throws `not_found`, `invalid_request` with
   * the path of a file that is not what its digest says, `too_large`, `quota_exceeded`, `no_capacity`, `disk_full`. What came before a failure stays.
   */
  async upload(
    orgId: string,
    id: string,
    archive: AsyncIterable<Uint8Array>,
    signal?: AbortSignal,
  ): Promise<ContextState & { ignored: number }> {
    using holds = new DisposableStack()
    holds.use(await this.#take(orgId, id))
    const weight = uploadEntriesMin + (await readHead(this.#index(orgId, id))).entries
    return await this.#uploads.use(
      async () => {
        const { assertDiskTakesData, limits } = this.#deps
        assertDiskTakesData()
        const { tree } = await this.#trees.get(this.#index(orgId, id))
        const blobs = this.#blobsOf(orgId)
        const target = { tree, blobs, missing: await blobs.missing(tree.digests), assertDiskTakesData }
        const ignored = await receive(archive, target, {
          archiveBytesMax: limits.contextBytesMax + limits.contextFilesMax * archiveBytesPerFile,
          storedBytesMax: limits.contextsBytesMax,
        })
        await this.#touch(orgId, id)
        // Another upload may have sent the rest.
        return { id, missing: await missingOf(tree, await blobs.missing(tree.digests)), ignored }
      },
      { key: orgId, weight, signal },
    )
  }

  /** A context that is complete. Dispose of it. Throws `not_found`, and `conflict` with `reason: context_incomplete`. */
  async open(orgId: string, id: string): Promise<Context> {
    const hold = await this.#take(orgId, id)
    try {
      const load = () => this.#trees.get(this.#index(orgId, id))
      const { head, tree } = await load()
      const blobs = this.#blobsOf(orgId)
      const missing = await blobs.missing(tree.digests)
      const example = tree.entries.find(({ blob }) => blob !== undefined && missing[blob] === 1)
      if (example === undefined) return new HeldContext({ id, head, load, blobs }, hold)
      const details = { reason: 'context_incomplete', field: 'context', path: shownKey(example.key) }
      throw new ServiceError('conflict', `context ${id} lacks files, such as ${details.path}: send them first`, {
        details,
      })
    } catch (error) {
      hold[Symbol.dispose]()
      throw error
    }
  }

  /** Removes contexts that nobody has used since, and contents that none has. */
  async removeUnused(usedBefore: Date, signal: AbortSignal): Promise<void> {
    for (const orgId of await namesIn(this.#deps.contextDir)) {
      if (signal.aborted) return
      await this.#locks.run(orgId, async () => {
        for (const { id, usedAt } of await this.#evictable(orgId))
          if (usedAt < usedBefore) await this.#remove(orgId, id)
        if (this.#littered.has(orgId)) await this.#collect(orgId)
      })
    }
  }

  /** Removes all of an organisation, whoever reads or sends to it. */
  async removeAll(orgId: string): Promise<void> {
    await this.#locks.run(orgId, async () => {
      await rm(this.#folder(orgId), { recursive: true, force: true })
      this.#blobs.delete(orgId)
      this.#littered.delete(orgId)
    })
  }

  /** The query of a URL that takes archives of a context without a key. */
  signUpload(orgId: string, id: string): string {
    return this.#signer.sign(['context', orgId, id], { shown: { org: orgId }, expiresInSeconds: uploadSeconds }).query
  }

  /** Whose context a signed query sends to. Throws `signature_invalid` or `signature_expired`. */
  verifyUpload(id: string, query: SignedParameters & { org?: string | undefined }): { orgId: string } {
    const { org: orgId = '' } = query
    assertSigned(this.#signer.faultOf(['context', orgId, id], query))
    return { orgId }
  }

  async #write(orgId: string, listing: Listing): Promise<ContextState> {
    const blobs = this.#blobsOf(orgId)
    const draft = await blobs.draft()
    try {
      const { id, bytes, tree } = await writeIndex(draft.file, orgId, listing)
      return await this.#locks.run(orgId, async () => {
        const isNew = await this.#place(orgId, id, draft.path)
        try {
          const missing = await blobs.missing(tree.digests)
          await this.#makeRoom(orgId, isNew ? bytes : 0, tree, missing)
          return { id, missing: await missingOf(tree, missing) }
        } catch (error) {
          if (isNew) await unlink(this.#index(orgId, id))
          throw error
        }
      })
    } finally {
      await draft.file.close()
      await rm(draft.path, { force: true })
    }
  }

  /** Gives an index its name; false when the context is there already. It is the first to be there: what makes room keeps what it names. */
  async #place(orgId: string, id: string, draft: string): Promise<boolean> {
    const path = this.#index(orgId, id)
    if ((await stat(path).catch(unlessMissing)) !== undefined) {
      await this.#touch(orgId, id)
      return false
    }
    await mkdir(this.#indexes(orgId), { recursive: true, mode: 0o700 })
    await rename(draft, path)
    await syncFolder(this.#indexes(orgId))
    return true
  }

  /** Removes the contexts that were used longest ago until one more fits with its contents. Throws `quota_exceeded`, also in place of a later upload. */
  async #makeRoom(orgId: string, indexBytes: number, tree: Tree, missing: Uint8Array): Promise<void> {
    const { contextsMax, contextsBytesMax } = this.#deps.limits
    const blobs = this.#blobsOf(orgId)
    const needed = (indexBytes > 0 ? Blobs.chargeOf(indexBytes) : 0) + chargeOfMissing(tree, missing)
    const old = (await this.#evictable(orgId)).filter(({ usedAt }) => usedAt.getTime() < Date.now() - evictableMs)
    const count = (await namesIn(this.#indexes(orgId))).length
    for (const { id } of old.splice(0, count - contextsMax)) await this.#remove(orgId, id)
    if (count - contextsMax > 0 && (await namesIn(this.#indexes(orgId))).length > contextsMax) {
      throw new ServiceError('quota_exceeded', `there are ${contextsMax} contexts that builds use or were just made`)
    }
    while ((await blobs.usedBytes()) + needed > contextsBytesMax) {
      if (old.length === 0) {
        throw new ServiceError(
          'quota_exceeded',
          `the files of all contexts would have more than ${contextsBytesMax} bytes`,
        )
      }
      for (const { id } of old.splice(0, Math.ceil(old.length / 4))) await this.#remove(orgId, id)
      await this.#collect(orgId)
    }
    if (indexBytes > 0) await blobs.charge(indexBytes, contextsBytesMax)
  }

  /** Contexts that nobody holds, the one that was used longest ago first. */
  async #evictable(orgId: string): Promise<{ id: string; usedAt: Date }[]> {
    const found: { id: string; usedAt: Date }[] = []
    for (const id of await namesIn(this.#indexes(orgId))) {
      const path = this.#index(orgId, id)
      if (!this.#holds.has(path)) found.push({ id, usedAt: (await stat(path)).mtime })
    }
    return found.toSorted((one, other) => one.usedAt.getTime() - other.usedAt.getTime())
  }

  async #remove(orgId: string, id: string): Promise<void> {
    const path = this.#index(orgId, id)
    const { size } = await stat(path)
    if (this.#holds.has(path)) return
    await unlink(path)
    await this.#blobsOf(orgId).discharge(size)
    this.#littered.add(orgId)
  }

  /** Removes contents that no index names. */
  async #collect(orgId: string): Promise<void> {
    const paths = (await namesIn(this.#indexes(orgId))).map((id) => this.#index(orgId, id))
    let count = 0
    for (const path of paths) await readDigests(path, async (digests) => void (count += digests.length / digestBytes))
    const used = new DigestSet(count)
    for (const path of paths) await readDigests(path, (digests) => used.addAll(digests))
    await this.#blobsOf(orgId).keepOnly(used)
    this.#littered.delete(orgId)
  }

  /** Holds a context and notes its use. Throws `not_found`. */
  async #take(orgId: string, id: string): Promise<Disposable> {
    const hold = this.#hold(this.#index(orgId, id))
    try {
      if (!idPattern.test(id)) throw noContext(id)
      // A removal under way has seen no hold.
      await this.#locks.run(orgId, () => this.#touch(orgId, id))
      return hold
    } catch (error) {
      hold[Symbol.dispose]()
      throw error
    }
  }

  #hold(path: string): Disposable {
    this.#holds.set(path, (this.#holds.get(path) ?? 0) + 1)
    let isHeld = true
    return {
      [Symbol.dispose]: () => {
        const count = (this.#holds.get(path) ?? 0) - (isHeld ? 1 : 0)
        if (count > 0) this.#holds.set(path, count)
        else this.#holds.delete(path)
        isHeld = false
      },
    }
  }

  async #touch(orgId: string, id: string): Promise<void> {
    const now = new Date()
    await utimes(this.#index(orgId, id), now, now).catch((error: unknown) => {
      unlessMissing(error)
      throw noContext(id)
    })
  }

  #blobsOf(orgId: string): Blobs {
    const blobs = this.#blobs.get(orgId) ?? new Blobs(this.#folder(orgId))
    this.#blobs.set(orgId, blobs)
    return blobs
  }

  #folder(orgId: string): string {
    return `${this.#deps.contextDir}/${orgId}`
  }

  #indexes(orgId: string): string {
    return `${this.#folder(orgId)}/indexes`
  }

  #index(orgId: string, id: string): string {
    return `${this.#indexes(orgId)}/${id}`
  }
}

async function missingOf(tree: Tree, missing: Uint8Array): Promise<string[]> {
  const digests: string[] = []
  const slice = new TimeSlice()
  for (const [blob, isMissing] of missing.entries()) {
    await slice.next()
    if (isMissing === 1) digests.push(`sha256:${tree.digestAt(blob)}`)
  }
  return digests
}

function chargeOfMissing(tree: Tree, missing: Uint8Array): number {
  const seen = new Uint8Array(missing)
  let bytes = 0
  for (const { blob, size = 0 } of tree.entries) {
    if (blob === undefined || seen[blob] !== 1) continue
    seen[blob] = 0
    bytes += Blobs.chargeOf(size)
  }
  return bytes
}

function noContext(id: string): ServiceError {
  return new ServiceError('not_found', `no context ${id}: one goes a day after its last use, so send the files again`, {
    details: { field: 'context' },
  })
}
