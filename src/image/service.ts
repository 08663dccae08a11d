import { ignoreNotFound, isServiceError, ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { Log } from '../lib/log.ts'
import type { SandboxLimits, SandboxService, StartedSandbox, StartFromCheckpoint } from '../sandbox/index.ts'
import { ArchiveUploads } from './archive-upload.ts'
import { BuildFiles, keyOf } from './build-files.ts'
import { BuildLogs } from './build-logs.ts'
import { logOf, type Origin, readyCheckpoint } from './builder.ts'
import type { Follower } from './builds.ts'
import type { Definitions } from './definitions.ts'
import type { Image, ImageLimits } from './image.ts'
import type { Manifest } from './manifest.ts'
import { assertName, ImageNames, importHash, newImage, notReady } from './names.ts'
import { RecordedBuilds } from './recorded-builds.ts'
import { Removal } from './removal.ts'
import { ImageRows } from './rows.ts'
import { imagesOf, type ImageStore } from './store.ts'

export interface ImageServiceDeps {
  store: ImageStore
  sandboxes: SandboxService
  /** The folder for files of builds under way; made if absent. */
  dir: string
  /** The folder for logs of builds; made if absent. */
  logDir: string
  limits: ImageLimits
  sandboxLimits: Pick<SandboxLimits, 'memoryMbMin' | 'memoryMbMax'>
  signingSecret: string
  /** Images that all organisations may name, built on demand in the organisation of the operator. */
  definitions: Definitions
  /** The organisation of the operator, whose images alone may be public. */
  operatorOrgId: () => Promise<string>
  log: Log
}

export type BuildOptions = CreateOptions & Follower

/** What a sandbox starts from, as a client names it. */
export type ImageRequest = { image: Manifest } | { snapshot: string }

export type ImageService = Omit<Images, 'start' | 'close' | 'removeUnused' | 'removeOldLogs'>

/** A start from an image is recorded at most once in this time. */
const usedEveryMs = 60_000

/**
 * Images of an organisation: built once for each content, kept as checkpoints. `rows.ts` finds or makes the row of
 * a request, `recorded-builds.ts` writes the end of its build there. See docs/internals/images.md.
 */
export class Images {
  readonly uploads: ArchiveUploads
  readonly #deps: ImageServiceDeps
  readonly #files: BuildFiles
  readonly #logs: BuildLogs
  readonly #names: ImageNames
  readonly #rows: ImageRows
  readonly #recorded: RecordedBuilds
  readonly #removal: Removal

  constructor(deps: ImageServiceDeps) {
    this.#deps = deps
    this.uploads = new ArchiveUploads(deps.signingSecret)
    const files = new BuildFiles(deps.dir)
    const logs = new BuildLogs(deps.logDir, deps.log)
    const locks = new KeyedMutex()
    this.#files = files
    this.#logs = logs
    this.#names = new ImageNames(deps)
    this.#removal = new Removal({ ...deps, locks, logs })
    this.#rows = new ImageRows({ ...deps, names: this.#names, files, logs, locks })
    const originOf = this.#findOrigin.bind(this)
    this.#recorded = new RecordedBuilds({ ...deps, files, logs, removal: this.#removal, originOf })
  }

  /** Removes what a crash has left, and goes on with detached builds. Call after the start of the sandbox service. */
  async start(): Promise<void> {
    const { store, log } = this.#deps
    const building = await store.imagesIn('building')
    await this.#removal.removeBuildSandboxes()
    const detached = building.filter((image) => image.isDetached)
    for (const image of building) if (!image.isDetached) await store.deleteImage(image.id)
    const keys = new Set(detached.map(keyOf))
    await this.#files.keepOnly(keys)
    await this.#logs.keepRunning(keys)
    await this.#removal.removeUnknown()
    await this.#settlePublications()
    for (const image of detached) {
      log.info({ imageId: image.id }, 'the build of an image goes on')
      this.#recorded.detach(image)
    }
  }

  /** Ends builds; the next start goes on with detached ones. */
  async close(): Promise<void> {
    await this.#recorded.close()
  }

  /** Removes images without a name from which nobody has started since. */
  async removeUnused(usedBefore: Date, signal: AbortSignal): Promise<void> {
    await this.#removal.removeUnused(usedBefore, signal)
  }

  /** Removes logs of builds that ended before, and those whose image a crash has removed without them. */
  async removeOldLogs(endedBefore: Date, signal?: AbortSignal): Promise<void> {
    const exists = async (id: string) => (await this.#deps.store.image(id)) !== undefined
    await this.#logs.removeOld(endedBefore, exists, signal)
  }

  /** Builds an image under a name and waits for its end. Throws `conflict` for a taken name, `build_failed`, `invalid_request`. */
  async create(orgId: string, name: string, manifest: Manifest, options: BuildOptions = {}): Promise<Image> {
    assertName(name)
    return await this.#recorded.track(this.#obtainBuilt(orgId, manifest, options, name))
  }

  /** Builds in the background: returns an image that is `building`. */
  async createDetached(orgId: string, name: string, manifest: Manifest, options: CreateOptions = {}): Promise<Image> {
    assertName(name)
    const image = await this.#rows.findOrInsert(orgId, manifest, { name, isDetached: true, ...options })
    if (image.status === 'building') this.#recorded.detach(image)
    return image
  }

  /** Makes an image under a name of an OCI or docker archive. Throws `conflict` for a taken name, `invalid_request` with what is wrong. */
  async importArchive(
    orgId: string,
    name: string,
    archive: AsyncIterable<Uint8Array>,
    options: Omit<BuildOptions, 'creation'> = {},
  ): Promise<Image> {
    assertName(name)
    const id = newId('img-')
    const hash = importHash(id)
    const manifest = { base: '', steps: [] }
    const image = newImage(orgId, { id, name, contentHash: hash, layerHashes: [hash], manifest, isDetached: false })
    await this.#rows.insert({ ...image, name })
    return await this.#recorded.track(this.#recorded.finish(image, options, { archive }))
  }

  /** All images of an organisation, or those with a name, newest first, read page by page. */
  list(orgId: string, isNamed = false): AsyncIterable<Image> {
    return imagesOf(this.#deps.store, { orgId, isNamed })
  }

  /** By name or id. Throws `not_found`. */
  async get(orgId: string, nameOrId: string): Promise<Image> {
    const image = await this.#names.findOwn(orgId, nameOrId)
    if (image === undefined) throw noImage(nameOrId)
    return image
  }

  /** By name or id; of another organisation only a published image, by name. */
  async getReadable(orgId: string, nameOrId: string): Promise<Image> {
    const image = await this.#names.findReadable(orgId, nameOrId)
    if (image === undefined) throw noImage(nameOrId)
    return image
  }

  /** Images with a name that sandboxes of the organisation may start from: its own, public ones, defined ones. */
  listUsable(orgId: string): AsyncIterable<Image> {
    return this.#names.listUsable(orgId)
  }

  /** Removes an image, and its data when nothing else needs it. Ends its build. Sandboxes from it run on. */
  async delete(orgId: string, nameOrId: string): Promise<void> {
    const { id } = await this.get(orgId, nameOrId)
    await this.#recorded.cancel(id, new ServiceError('conflict', `the build of image ${nameOrId} was cancelled`))
    await this.#removal.remove(orgId, id)
  }

  /** Follows a build until its end, or the end of one that is over. Throws `build_failed`, and `not_found` when it was cancelled. */
  async follow(orgId: string, nameOrId: string, { signal, onEvent }: BuildOptions = {}): Promise<Image> {
    const image = await this.get(orgId, nameOrId)
    if (image.status === 'building') await this.#recorded.watch(image, defined({ signal, onEvent }))
    signal?.throwIfAborted()
    await this.#recorded.waitForEnd(image.id)
    const { failure, ...ended } = await this.get(orgId, image.id)
    if (failure === undefined) return ended
    const { message, ...details } = failure
    throw new ServiceError('build_failed', message, { details })
  }

  /** Passes on what the build of an image has told so far. Throws `not_found`, also when there is no log, or none any more. */
  async readLog(orgId: string, nameOrId: string, send: (text: AsyncIterable<Buffer>) => Promise<void>): Promise<void> {
    const image = await this.get(orgId, nameOrId)
    // The end of a build keeps its log under the id before the row tells of it.
    if (image.status === 'building' && (await this.#logs.read({ key: keyOf(image) }, send))) return
    if (await this.#logs.read(image, send)) return
    const why =
      image.status === 'building'
        ? 'its build has told nothing yet'
        : 'a log is kept for thirty days, and of the newest images'
    throw new ServiceError('not_found', `image ${nameOrId} has no log: ${why}`)
  }

  /** Throws `forbidden` unless the organisation is the operator's. */
  async publish(orgId: string, nameOrId: string, isPublic: boolean): Promise<Image> {
    const { store, operatorOrgId } = this.#deps
    if ((await operatorOrgId()) !== orgId) {
      throw new ServiceError('forbidden', "only the operator's own organisation may publish")
    }
    const image = await this.get(orgId, nameOrId)
    if (image.checkpointId === undefined) throw notReady(image)
    // In this order a crash in between leaves a public image without a public checkpoint, which `start` makes private.
    const record = async () => (await store.updateImage(image.id, { isPublic })) ?? image
    const published = isPublic ? await record() : undefined
    await this.#deps.sandboxes.checkpoints.publish(orgId, image.checkpointId, isPublic)
    return published ?? (await record())
  }

  /** The checkpoint of an image, for its patches. Throws `not_found` also while there is none. */
  async checkpointOf(orgId: string, nameOrId: string): Promise<string> {
    const { checkpointId } = await this.get(orgId, nameOrId)
    if (checkpointId === undefined) throw new ServiceError('not_found', `image ${nameOrId} has no checkpoint`)
    return checkpointId
  }

  /** Starts a sandbox from an image, which is built first if need be. */
  async startSandbox(
    orgId: string,
    request: ImageRequest,
    input: StartFromCheckpoint,
    options: BuildOptions = {},
  ): Promise<StartedSandbox> {
    const { sandboxes } = this.#deps
    // Before a build that may take minutes. A repeat of the request may have the name already.
    const { name } = input
    if (name !== undefined) await sandboxes.assertNameFree(orgId, name, options.creation?.id('sb-'))
    const image = await this.obtain(orgId, request, options)
    options.onEvent?.(logOf(0, 'create', 'starting the sandbox'))
    return await this.startFrom(orgId, image, input, options)
  }

  /** Starts a sandbox from an image that `obtain` or `findNamed` has returned. */
  async startFrom(
    orgId: string,
    { checkpointId = '', memoryMb: least }: Image,
    input: StartFromCheckpoint,
    { creation }: CreateOptions = {},
  ): Promise<StartedSandbox> {
    const memoryMb = Math.max(least, input.memoryMb ?? 0)
    return await this.#deps.sandboxes.checkpoints.start(orgId, checkpointId, { ...input, memoryMb }, { creation })
  }

  /** An image that is `ready`. Throws `not_found` for an unknown name, `conflict` while it is not ready, and what a build throws. */
  async obtain(orgId: string, request: ImageRequest, options: Omit<BuildOptions, 'creation'> = {}): Promise<Image> {
    if ('image' in request) {
      const { name } = request.image
      if (name !== undefined) assertName(name)
      const { signal, onEvent } = options
      return await this.#recorded.track(
        this.#obtainBuilt(orgId, request.image, { ...defined({ signal, onEvent }), isShared: true }, name),
      )
    }
    options.onEvent?.(logOf(0, 'resolve', `looking up snapshot ${request.snapshot}`))
    const image = await this.#findUsable(orgId, request.snapshot, options)
    if (image === undefined) throw await this.#names.unknown(orgId, request.snapshot)
    return image
  }

  /**
   * Starts a sandbox from what `templateID` names: an image of the organisation, a public, a defined or an installed one. Throws `not_found`
   * with the images that there are.
   */
  async startNamed(
    orgId: string,
    nameOrId: string,
    input: StartFromCheckpoint,
    { signal, creation }: BuildOptions = {},
  ): Promise<StartedSandbox> {
    const image = await this.findNamed(orgId, nameOrId, defined({ signal }))
    if (image !== undefined) return await this.startFrom(orgId, image, input, defined({ creation }))
    try {
      return await this.#deps.sandboxes.create(orgId, { ...input, image: nameOrId }, defined({ creation }))
    } catch (error) {
      const isUnknown = isServiceError(error, 'not_found') && error.details['field'] === 'templateID'
      throw isUnknown ? await this.#names.unknown(orgId, nameOrId, error) : error
    }
  }

  /**
   * The image that `templateID` names, if it is one of the organisation, a public or a defined one, which is built first if need be.
   * Installed images have other names.
   */
  async findNamed(orgId: string, nameOrId: string, { signal }: BuildOptions = {}): Promise<Image | undefined> {
    return nameOrId === 'base' ? undefined : await this.#findUsable(orgId, nameOrId, defined({ signal }))
  }

  /** Makes public images private whose checkpoint is private: a crash has cut off `publish`. */
  async #settlePublications(): Promise<void> {
    const { store, sandboxes, log } = this.#deps
    for await (const { id, orgId, checkpointId = '' } of imagesOf(store, {})) {
      const checkpoint = await sandboxes.checkpoints.settled(orgId, checkpointId).catch(ignoreNotFound)
      if (checkpoint === undefined || checkpoint.isPublic) continue
      await store.updateImage(id, { isPublic: false })
      log.warn({ imageId: id }, 'an image was public without its checkpoint, and is not any more')
    }
  }

  async #findUsable(orgId: string, nameOrId: string, { signal, onEvent }: Follower): Promise<Image | undefined> {
    const image =
      (await this.#names.findUsable(orgId, nameOrId)) ??
      (await this.#buildDefined(nameOrId, defined({ signal, onEvent })))
    if (image !== undefined) await this.#touch(image)
    return image
  }

  /**
   * The image of a definition: one without a name of the operator's organisation, so that a changed definition is another one. Its build goes on
   * when the client leaves. Throws `build_failed`.
   */
  async #buildDefined(name: string, follower: Follower): Promise<Image | undefined> {
    const { definitions, operatorOrgId, sandboxes } = this.#deps
    const manifest = definitions.get(name)
    if (manifest === undefined) return undefined
    const orgId = await operatorOrgId()
    let image = await this.#rows.findOrInsert(orgId, manifest, { isDetached: true })
    if (image.status === 'building') {
      this.#recorded.detach(image)
      image = await this.follow(orgId, image.id, follower).catch((error: unknown) => {
        if (!isServiceError(error, 'build_failed')) throw error
        throw new ServiceError('build_failed', `image ${name}: ${error.message}`, { details: error.details })
      })
    }
    const { checkpointId = '' } = image
    const checkpoint = await readyCheckpoint(sandboxes, orgId, checkpointId)
    if (checkpoint !== undefined && !checkpoint.isPublic) await sandboxes.checkpoints.publish(orgId, checkpointId, true)
    return image
  }

  async #obtainBuilt(
    orgId: string,
    manifest: Manifest,
    { isShared = false, ...options }: BuildOptions & { isShared?: boolean },
    name?: string,
  ): Promise<Image> {
    const { signal, onEvent, creation } = options
    const row = { isDetached: false, isShared, ...defined({ name, creation }) }
    const image = await this.#rows.findOrInsert(orgId, manifest, row)
    if (image.status === 'ready') {
      onEvent?.(logOf(0, 'cache_hit', `image ${image.contentHash.slice(0, 12)} is there`))
      await this.#touch(image)
      return image
    }
    return await this.#recorded.finish(image, defined({ signal, onEvent }))
  }

  /** What a build begins with. A defined base is built first, before this build takes a permit: the base needs one itself. */
  async #findOrigin(orgId: string, base: string, follower: Follower): Promise<Origin> {
    const image =
      base === 'base'
        ? undefined
        : ((await this.#names.findUsable(orgId, base)) ?? (await this.#buildDefined(base, follower)))
    return image?.checkpointId === undefined ? { image: base } : { checkpointId: image.checkpointId }
  }

  async #touch(image: Image): Promise<void> {
    if (Date.now() - image.lastUsedAt.getTime() < usedEveryMs) return
    await this.#deps.store.updateImage(image.id, { lastUsedAt: new Date() })
  }
}

function noImage(name: string): ServiceError {
  return new ServiceError('not_found', `no image ${name}`)
}
