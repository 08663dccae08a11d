import { isServiceError, ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { Log } from '../lib/log.ts'
import {
  assertInteger,
  type ImageSource,
  type SandboxLimits,
  type SandboxService,
  type StartedSandbox,
  type StartFromCheckpoint,
} from '../sandbox/index.ts'
import { ArchiveUploads } from './archive-upload.ts'
import { BuildFiles } from './build-files.ts'
import { checkpointName, buildImage, type BuilderContext, logOf, type Origin, readyCheckpoint } from './builder.ts'
import { Builds, type Follower } from './builds.ts'
import type { Definitions } from './definitions.ts'
import type { BuildEvent, BuildFailure, BuiltImage, Image, ImageLimits, OciFacts } from './image.ts'
import { type Manifest, planOf } from './manifest.ts'
import { assertName, ImageNames, importHash, newImage, notReady } from './names.ts'
import { Removal } from './removal.ts'
import type { ImageStore } from './store.ts'

export interface ImageServiceDeps {
  store: ImageStore
  sandboxes: SandboxService
  /** For files of builds under way; made if absent. */
  dir: string
  limits: ImageLimits
  sandboxLimits: Pick<SandboxLimits, 'memoryMbMin' | 'memoryMbMax'>
  signingSecret: string
  /** Images that all organisations may name, built on demand in the organisation of the operator. */
  definitions: Definitions
  /** The organisation of the operator, whose images alone may be public. */
  operatorOrgId: () => Promise<string>
  log: Log
}

export interface BuildOptions extends CreateOptions {
  /** Ends the build when no other request waits for it. Not for a detached one. */
  signal?: AbortSignal
  /** Gets what has happened so far, then what happens. */
  onEvent?: (event: BuildEvent) => void
}

/** What a sandbox starts from, as a client names it. */
export type ImageRequest = { image: Manifest } | { snapshot: string }

export type ImageService = Omit<Images, 'start' | 'close'>

const sweepEveryMs = 3_600_000
/** A start from an image is recorded at most so often. */
const usedEveryMs = 60_000
const buildsOfAll = 8

/**
 * Images of an organisation: built once for each content, kept as checkpoints. A row is the claim to a content; `Builds` has one build for
 * all rows with the same. See docs/images.md.
 */
export class Images {
  readonly uploads: ArchiveUploads
  readonly #deps: ImageServiceDeps
  readonly #files: BuildFiles
  readonly #builds: Builds
  readonly #builder: BuilderContext
  readonly #names: ImageNames
  readonly #removal: Removal
  readonly #semaphore: Semaphore
  /** By organisation: what finds an image to share, and what removes one that nobody needs. */
  readonly #locks = new KeyedMutex()
  /** By image: the requests that wait for its build, and what ends them. */
  readonly #waits = new Map<string, { requests: number; cancel: AbortController; over: PromiseWithResolvers<void> }>()
  /** The ends of all requests and detached builds. */
  readonly #running = new Set<Promise<unknown>>()
  #sweep: NodeJS.Timeout | undefined
  #isClosing = false

  constructor(deps: ImageServiceDeps) {
    this.#deps = deps
    this.uploads = new ArchiveUploads(deps.signingSecret)
    this.#files = new BuildFiles(deps.dir)
    this.#builder = { ...deps, files: this.#files }
    this.#names = new ImageNames(deps)
    this.#removal = new Removal({ ...deps, locks: this.#locks })
    this.#semaphore = new Semaphore({ permits: buildsOfAll, permitsPerKey: deps.limits.buildsAtOnce })
    // The next start goes on with detached builds.
    this.#builds = new Builds(async (key) => (this.#isClosing ? undefined : await this.#files.remove(key)))
  }

  /** Removes what a crash has left, goes on with detached builds, and starts the clock. The sandbox service has been started. */
  async start(): Promise<void> {
    const { store, log } = this.#deps
    const building = await store.imagesIn('building')
    await this.#removal.removeBuildSandboxes()
    const detached = building.filter((image) => image.isDetached)
    for (const image of building) if (!image.isDetached) await store.deleteImage(image.id)
    await this.#files.keepOnly(new Set(detached.map(keyOf)))
    await this.#removal.removeUnknown()
    for (const image of detached) {
      log.info({ imageId: image.id }, 'the build of an image goes on')
      this.#detach(image)
    }
    this.#sweep = setInterval(() => {
      this.#removal
        .removeUnused()
        .catch((error: unknown) => log.warn({ err: error }, 'unused images could not be removed'))
    }, sweepEveryMs).unref()
  }

  /** Ends builds; the next start goes on with detached ones. */
  async close(): Promise<void> {
    this.#isClosing = true
    clearInterval(this.#sweep)
    for (const { cancel } of this.#waits.values())
      cancel.abort(new ServiceError('unavailable', 'the server is stopping'))
    await Promise.allSettled(this.#running)
    await this.#builds.settled()
  }

  /** Builds an image under a name and waits for its end. Throws `conflict` for a taken name, `build_failed`, `invalid_request`. */
  async create(orgId: string, name: string, manifest: Manifest, options: BuildOptions = {}): Promise<Image> {
    assertName(name)
    return await this.#tracked(this.#obtain(orgId, manifest, options, name))
  }

  /** The same in the background: returns an image that is `building`. */
  async createDetached(orgId: string, name: string, manifest: Manifest, options: CreateOptions = {}): Promise<Image> {
    assertName(name)
    const image = await this.#claim(orgId, manifest, { name, isDetached: true, ...options })
    if (image.status === 'building') this.#detach(image)
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
    await this.#locks.run(orgId, async () => {
      await this.#freeName(orgId, name)
      await this.#deps.store.insertImage(image)
    })
    return await this.#tracked(this.#built(image, options, { archive }))
  }

  /** All images of an organisation, newest first. */
  async list(orgId: string): Promise<Image[]> {
    return await this.#deps.store.listImages(orgId)
  }

  /** By name or id. Throws `not_found`. */
  async get(orgId: string, nameOrId: string): Promise<Image> {
    const image = await this.#names.own(orgId, nameOrId)
    if (image === undefined) throw noImage(nameOrId)
    return image
  }

  /** By name or id; of another organisation only what that has published, by its name. */
  async readable(orgId: string, nameOrId: string): Promise<Image> {
    const image = await this.#names.readable(orgId, nameOrId)
    if (image === undefined) throw noImage(nameOrId)
    return image
  }

  /** Images with a name that sandboxes of the organisation may start from: its own, public ones, defined ones. */
  async usable(orgId: string): Promise<Image[]> {
    return await this.#names.listUsable(orgId)
  }

  /** Removes an image, and its data when nothing else needs it. Ends its build. Sandboxes from it run on. */
  async delete(orgId: string, nameOrId: string): Promise<void> {
    const { id } = await this.get(orgId, nameOrId)
    const wait = this.#waits.get(id)
    wait?.cancel.abort(new ServiceError('conflict', `the build of image ${nameOrId} was cancelled`))
    await wait?.over.promise
    await this.#removal.remove(orgId, id)
  }

  /** Follows a build until its end, or the end of one that is over. Throws `build_failed`, and `not_found` when it was cancelled. */
  async follow(orgId: string, nameOrId: string, { signal, onEvent }: BuildOptions = {}): Promise<Image> {
    const image = await this.get(orgId, nameOrId)
    if (image.status === 'building') await this.#builds.watch(keyOf(image), defined({ signal, onEvent }))
    signal?.throwIfAborted()
    // Its end is recorded after the end of the build.
    await this.#waits.get(image.id)?.over.promise
    const { failure, ...ended } = await this.get(orgId, image.id)
    if (failure === undefined) return ended
    const { message, ...details } = failure
    throw new ServiceError('build_failed', message, { details })
  }

  /** Throws `forbidden` unless the organisation is the operator's. */
  async publish(orgId: string, nameOrId: string, isPublic: boolean): Promise<Image> {
    const { store, operatorOrgId } = this.#deps
    if ((await operatorOrgId()) !== orgId) {
      throw new ServiceError('forbidden', "only the operator's own organisation may publish")
    }
    const image = await this.get(orgId, nameOrId)
    if (image.checkpointId === undefined) throw notReady(image)
    await this.#deps.sandboxes.checkpoints.publish(orgId, image.checkpointId, isPublic)
    return (await store.updateImage(image.id, { isPublic })) ?? image
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
    const image = await this.obtain(orgId, request, options)
    options.onEvent?.(logOf(0, 'create', 'starting the sandbox'))
    return await this.startFrom(orgId, image, input, options)
  }

  /** Starts a sandbox from an image that `obtain` or `named` has returned. */
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
      return await this.#tracked(
        this.#obtain(orgId, request.image, { ...defined({ signal, onEvent }), isShared: true }, name),
      )
    }
    options.onEvent?.(logOf(0, 'resolve', `looking up snapshot ${request.snapshot}`))
    const image = await this.#used(orgId, request.snapshot, options)
    if (image === undefined) throw noImage(request.snapshot)
    return image
  }

  /**
   * The image that `templateID` names, if it is one of the organisation, a public or a defined one, which is built first if need be.
   * Installed images have other names.
   */
  async named(orgId: string, nameOrId: string, { signal }: BuildOptions = {}): Promise<Image | undefined> {
    return nameOrId === 'base' ? undefined : await this.#used(orgId, nameOrId, defined({ signal }))
  }

  async #used(orgId: string, nameOrId: string, { signal, onEvent }: Follower): Promise<Image | undefined> {
    const image =
      (await this.#names.usable(orgId, nameOrId)) ?? (await this.#defined(nameOrId, defined({ signal, onEvent })))
    if (image !== undefined) await this.#touch(image)
    return image
  }

  /**
   * The image of a definition: one without a name of the operator's organisation, so that a changed definition is another one. Its build goes on
   * when the client leaves. Throws `build_failed`.
   */
  async #defined(name: string, follower: Follower): Promise<Image | undefined> {
    const { definitions, operatorOrgId, sandboxes } = this.#deps
    const manifest = definitions.get(name)
    if (manifest === undefined) return undefined
    const orgId = await operatorOrgId()
    let image = await this.#claim(orgId, manifest, { isDetached: true })
    if (image.status === 'building') {
      this.#detach(image)
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

  async #obtain(
    orgId: string,
    manifest: Manifest,
    { isShared = false, ...options }: BuildOptions & { isShared?: boolean },
    name?: string,
  ): Promise<Image> {
    const { signal, onEvent, creation } = options
    const claim = { isDetached: false, isShared, ...defined({ name, creation }) }
    const image = await this.#claim(orgId, manifest, claim)
    if (image.status === 'ready') {
      onEvent?.(logOf(0, 'cache_hit', `image ${image.contentHash.slice(0, 12)} is there`))
      await this.#touch(image)
      return image
    }
    return await this.#built(image, defined({ signal, onEvent }))
  }

  /**
   * The row of a request: a new one that is `building`, or for a content that is there `ready`. A request without a name shares the row
   * of any image with its content; `isShared` says that one with a name may share that of the name, if it has the same content.
   */
  async #claim(
    orgId: string,
    manifest: Manifest,
    { name, isDetached, isShared = false, creation }: Claim,
  ): Promise<Image> {
    const { store, limits, sandboxLimits } = this.#deps
    const plan = await planOf(manifest, limits)
    const { outline } = plan
    for (const field of ['builderMemoryMB', 'runtimeMemoryMB'] as const) {
      const value = outline[field]
      if (value !== undefined)
        assertInteger(value, `image.${field}`, sandboxLimits.memoryMbMin, sandboxLimits.memoryMbMax)
    }
    const made = creation?.made.find((id) => id.startsWith('img-'))
    const earlier = made === undefined ? undefined : await store.image(made, orgId)
    if (earlier !== undefined) return earlier
    if (outline.oci !== undefined) this.#deps.sandboxes.checkpoints.assertImportable(outline.oci)
    const { layerHashes, contentHash } = await this.#names.hashesOf(orgId, outline)
    const draft = newImage(orgId, {
      ...defined({ name }),
      id: made ?? creation?.id('img-') ?? newId('img-'),
      contentHash,
      layerHashes,
      manifest: outline,
      isDetached,
    })
    return await this.#locks.run(orgId, async () => {
      const alike = await store.imagesOf(contentHash, orgId)
      const same = isShared ? alike.find((image) => image.name === name && image.status !== 'failed') : undefined
      if (name !== undefined && same !== undefined) return same
      if (name !== undefined) await this.#freeName(orgId, name)
      const ready = await this.#firstWhole(orgId, alike)
      if (name === undefined) {
        const shared = ready ?? alike.find((image) => image.status === 'building' && image.name === undefined)
        if (shared !== undefined) return shared
        for (const image of alike)
          if (image.status === 'failed' && image.name === undefined) await store.deleteImage(image.id)
      }
      const shared = ready?.checkpointId
      const image: Image =
        shared === undefined
          ? draft
          : { ...draft, status: 'ready', checkpointId: shared, ...defined({ oci: ready?.oci }) }
      if (image.status === 'building') await this.#files.write(keyOf(image), plan.contents)
      await store.insertImage(image, made === undefined ? creation : undefined)
      return image
    })
  }

  /** Throws `conflict` for a name that is taken, and when there are too many. A failed image makes room. */
  async #freeName(orgId: string, name: string): Promise<void> {
    const { store, limits } = this.#deps
    const taken = await store.imageNamed(name, orgId)
    if (taken?.status === 'failed') await store.deleteImage(taken.id)
    else if (taken !== undefined) throw new ServiceError('conflict', `there is an image named ${name}`)
    const named = (await store.listImages(orgId)).filter((image) => image.name !== undefined)
    if (named.length >= limits.snapshotsMax) {
      throw new ServiceError('conflict', `the organisation has ${named.length} named images, the most it may have`)
    }
  }

  /** The first of these whose checkpoint is there. Rows without their data are removed. */
  async #firstWhole(orgId: string, images: readonly Image[]): Promise<Image | undefined> {
    const { store, sandboxes } = this.#deps
    for (const image of images) {
      if (image.status !== 'ready' || image.checkpointId === undefined) continue
      if (await readyCheckpoint(sandboxes, orgId, image.checkpointId)) return image
      if (image.name === undefined) await store.deleteImage(image.id)
      else await store.updateImage(image.id, { status: 'failed', failure: { message: 'its data is gone' } })
    }
    return undefined
  }

  /** What a build begins with. A defined image is built first, outside of the count of builds, which this one waits for, too. */
  async #origin(orgId: string, base: string, follower: Follower): Promise<Origin> {
    const image =
      base === 'base' ? undefined : ((await this.#names.usable(orgId, base)) ?? (await this.#defined(base, follower)))
    return image?.checkpointId === undefined ? { image: base } : { checkpointId: image.checkpointId }
  }

  #detach(image: Image): void {
    this.#tracked(this.#built(image, {})).catch((error: unknown) => {
      if (!isServiceError(error)) this.#deps.log.error({ err: error, imageId: image.id }, 'a build failed')
    })
  }

  /** Waits for the build of an image and records its end. Given up, the image goes; a detached one stays for the next start. */
  async #built(image: Image, { signal, onEvent }: Follower, source?: ArchiveSource): Promise<Image> {
    const { store, log } = this.#deps
    const { id, orgId, isDetached } = image
    const wait = this.#waits.get(id) ?? {
      requests: 0,
      cancel: new AbortController(),
      over: Promise.withResolvers<void>(),
    }
    this.#waits.set(id, wait)
    wait.requests += 1
    const { cancel } = wait
    const given = signal === undefined ? cancel.signal : AbortSignal.any([signal, cancel.signal])
    try {
      const build = (emit: (event: BuildEvent) => void, ended: AbortSignal) => this.#build(image, source, emit, ended)
      const follower = { ...defined({ onEvent }), signal: given }
      const { checkpointId, oci } = await this.#builds.join(keyOf(image), build, follower)
      const change = { status: 'ready', checkpointId, lastUsedAt: new Date(), ...defined({ oci }) } as const
      const ready = await store.updateImage(id, change)
      if (ready !== undefined) return ready
      await this.#removal.removeCheckpoints([{ id: checkpointId, orgId }])
      throw new ServiceError('conflict', `image ${image.name ?? id} was deleted`)
    } catch (error) {
      if (given.aborted) {
        const isKept = wait.requests > 1 || (isDetached && this.#isClosing)
        if (!isKept) await this.#removal.remove(orgId, id)
      } else {
        if (!isServiceError(error)) log.error({ err: error, imageId: id }, 'the build of an image failed')
        await store.updateImage(id, { status: 'failed', failure: failureOf(error) })
      }
      throw error
    } finally {
      wait.requests -= 1
      if (wait.requests === 0) {
        this.#waits.delete(id)
        wait.over.resolve()
      }
    }
  }

  async #build(
    image: Image,
    source: ArchiveSource | undefined,
    emit: (event: BuildEvent) => void,
    signal: AbortSignal,
  ): Promise<BuiltImage> {
    const { orgId, manifest: outline, layerHashes, memoryMb } = image
    const reference = outline.oci === undefined ? undefined : { reference: outline.oci }
    const from = source ?? reference ?? (await this.#origin(orgId, outline.base, { signal }))
    return await this.#semaphore.use(
      async () => {
        const build = { orgId, outline, memoryMb, key: keyOf(image) }
        if ('image' in from || 'checkpointId' in from) {
          const onOrigin = { ...build, layerHashes, origin: from }
          return { checkpointId: await buildImage(this.#builder, onOrigin, emit, signal) }
        }
        const { checkpointId, cwd, oci } = await this.#imported(image, from, emit, signal)
        if (outline.steps.length === 0 && !outline.memory && cwd === undefined) return { checkpointId, oci }
        const onImport = { ...build, layerHashes: layerHashes.slice(1), origin: { checkpointId }, ...defined({ cwd }) }
        return { checkpointId: await buildImage(this.#builder, onImport, emit, signal), oci }
      },
      { key: orgId, signal },
    )
  }

  /** The checkpoint of an OCI image, which is the first layer of an image on it. */
  async #imported(
    { orgId, layerHashes: [hash = ''] }: Image,
    source: ImageSource,
    emit: (event: BuildEvent) => void,
    signal: AbortSignal,
  ): Promise<{ checkpointId: string; cwd?: string; oci: OciFacts }> {
    const { store, sandboxes } = this.#deps
    const [layer] = await store.layers(orgId, [hash])
    const checkpoint = layer && (await readyCheckpoint(sandboxes, orgId, layer.checkpointId))
    const known = (await store.listImages(orgId)).find((image) => image.layerHashes[0] === hash && image.oci)
    if (checkpoint !== undefined && known?.oci !== undefined) {
      emit(logOf(0, 'import', `image ${known.oci.digest} is there`))
      const { cwd } = checkpoint.sandboxConfig.commandDefaults ?? {}
      return { checkpointId: checkpoint.id, ...defined({ cwd }), oci: known.oci }
    }
    emit(logOf(0, 'import', 'reference' in source ? `fetching ${source.reference}` : 'reading the archive'))
    const id = newId('cp-')
    const { digest, config } = await sandboxes.checkpoints.import(
      orgId,
      { id, name: checkpointName(id), source },
      signal,
    )
    await store.putLayer({ orgId, hash, checkpointId: id })
    emit(logOf(0, 'import', `image ${digest}`))
    const { entrypoint, cmd, cwd } = config
    return { checkpointId: id, ...defined({ cwd }), oci: { digest, entrypoint, cmd } }
  }

  async #touch(image: Image): Promise<void> {
    if (Date.now() - image.lastUsedAt.getTime() < usedEveryMs) return
    await this.#deps.store.updateImage(image.id, { lastUsedAt: new Date() })
  }

  async #tracked<Result>(work: Promise<Result>): Promise<Result> {
    this.#running.add(work)
    try {
      return await work
    } finally {
      this.#running.delete(work)
    }
  }
}

interface Claim extends CreateOptions {
  name?: string
  isDetached: boolean
  isShared?: boolean
}

type ArchiveSource = Extract<ImageSource, { archive: unknown }>

/** Of a build and its files: a legal file name, as neither an id nor a hash has a slash. */
function keyOf({ orgId, contentHash }: Image): string {
  return `${orgId}-${contentHash}`
}

function failureOf(error: unknown): BuildFailure {
  if (!(error instanceof ServiceError)) return { message: 'the server failed' }
  const { step, type, exitCode, stderr } = error.details as Partial<BuildFailure>
  return { message: error.message, ...defined({ step, type, exitCode, stderr }) }
}

function noImage(name: string): ServiceError {
  return new ServiceError('not_found', `no image ${name}`)
}
