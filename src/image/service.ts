import { ignoreNotFound, isServiceError, ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { Log } from '../lib/log.ts'
import {
  assertInput,
  type SandboxLimits,
  type SandboxService,
  type StartedSandbox,
  type StartFromCheckpoint,
} from '../sandbox/index.ts'
import { ArchiveUploads } from './archive-upload.ts'
import type { Follower } from './build/builds.ts'
import { BuildFiles, keyOf } from './build/files.ts'
import { Layers } from './build/layers.ts'
import { BuildLogs } from './build/logs.ts'
import { type BuildSecrets, RecordedBuilds } from './build/recorded-builds.ts'
import { logOf } from './build/sandbox.ts'
import { type ContextDeps, Contexts } from './contexts.ts'
import type { Definitions } from './definitions.ts'
import { ImageExports } from './export/exports.ts'
import type { OciArchive } from './export/oci-archive.ts'
import type { Image, ImageLimits } from './image.ts'
import { outlineOfDockerfile } from './dockerfile-manifest.ts'
import type { Manifest } from './manifest.ts'
import { canonicalName, ImageNames, importHash, newImage, type ReadableImage, readName } from './names.ts'
import { Publications } from './publications.ts'
import type { RegistryCredentials } from './registry-credentials.ts'
import { Removal } from './removal.ts'
import { ImageRows } from './rows.ts'
import { imagesOf, type ImageStore } from './store.ts'
import { type Bases, UsableImages } from './usable-images.ts'

export interface ImageServiceDeps extends ContextDeps {
  /** Builds that an organisation may run at a time, in the place of `limits.buildsAtOnce`. */
  buildsAtOnceOf?: (orgId: string) => number
  store: ImageStore
  sandboxes: SandboxService
  registryCredentials: RegistryCredentials
  /** The folder for files of builds under way; made if absent. */
  dir: string
  /** The folder for files of exports under way; made if absent. */
  exportDir: string
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

export interface NameOptions {
  /** Gives a name that is taken to the new image, once it is ready. Until then it means the old one. */
  replace?: boolean
}

export type BuildOptions = CreateOptions & Follower & NameOptions

/** What a sandbox starts from, as a client names it. */
export type ImageRequest = { image: Manifest } | { snapshot: string }

export type ImageService = Omit<
  Images,
  'start' | 'close' | 'removeUnused' | 'removeOldLogs' | 'cancelBuilds' | 'removeAll'
>

/**
 * Images of an organisation: built once for each content, kept as checkpoints. `rows.ts` finds or makes the row of
 * a request, `build/recorded-builds.ts` writes the end of its build there. See docs/internals/images.md.
 */
export class Images {
  readonly uploads: ArchiveUploads
  readonly registries: RegistryCredentials
  readonly contexts: Contexts
  readonly #deps: ImageServiceDeps
  readonly #files: BuildFiles
  readonly #logs: BuildLogs
  readonly #names: ImageNames
  readonly #rows: ImageRows
  readonly #recorded: RecordedBuilds
  readonly #usable: UsableImages
  readonly #exports: ImageExports
  readonly #publications: Publications
  readonly #removal: Removal

  constructor(deps: ImageServiceDeps) {
    this.#deps = deps
    this.registries = deps.registryCredentials
    this.uploads = new ArchiveUploads(deps.signingSecret)
    this.contexts = new Contexts(deps)
    this.#exports = new ImageExports(deps)
    this.#files = new BuildFiles(deps.dir)
    this.#logs = new BuildLogs(deps.logDir, deps.log)
    const { contexts } = this
    this.#names = new ImageNames({ ...deps, contexts })
    this.#publications = new Publications(deps)
    const [files, logs, names, publications] = [this.#files, this.#logs, this.#names, this.#publications]
    const locks = new KeyedMutex()
    const secrets: BuildSecrets = new Map()
    const removal = new Removal({ ...deps, locks, logs })
    const rows = new ImageRows({ ...deps, names, files, logs, locks, publications, secrets })
    const layers = new Layers({ ...deps, removal })
    // A base may have to be built first.
    const bases: Bases = {
      originOf: (...args) => this.#usable.originOf(...args),
      findBase: (...args) => this.#usable.findBase(...args),
    }
    const recorded = new RecordedBuilds({
      ...{ ...deps, contexts, files, layers, logs, secrets, publications, removal, bases },
    })
    this.#removal = removal
    this.#rows = rows
    this.#recorded = recorded
    this.#usable = new UsableImages({ ...deps, names, rows, recorded, follow: this.follow.bind(this) })
  }

  /** Removes what a crash has left, and goes on with detached builds. Call after the start of the sandbox service. */
  async start(): Promise<void> {
    const { store, log } = this.#deps
    const building = await store.imagesIn('building')
    await this.contexts.start()
    await this.#removal.removeBuildSandboxes()
    const detached = building.filter((image) => image.isDetached)
    for (const image of building) if (!image.isDetached) await store.deleteImage(image.id)
    const keys = new Set(detached.map(keyOf))
    await this.#files.keepOnly(keys)
    await this.#logs.keepRunning(keys)
    await this.#removal.removeUnknown()
    await this.#exports.removeDrafts()
    await this.#publications.settle()
    for (const image of detached) {
      log.info({ imageId: image.id }, 'the build of an image goes on')
      this.#recorded.detach(image)
    }
  }

  /** Ends builds; the next start goes on with detached ones. */
  async close(): Promise<void> {
    await this.#recorded.close()
  }

  /** Ends all builds of an organisation, and returns when that is recorded. Their images go. */
  async cancelBuilds(orgId: string, reason: ServiceError): Promise<void> {
    await this.#recorded.cancelAll(orgId, reason)
  }

  /** Removes the images of an organisation with their layers, the logs of its builds, and its contexts. */
  async removeAll(orgId: string): Promise<void> {
    await this.cancelBuilds(orgId, new ServiceError('conflict', 'the organisation is being deleted'))
    for await (const { id } of this.list(orgId)) await this.delete(orgId, id).catch(ignoreNotFound)
    await this.#removal.removeLayers(orgId)
    await this.#logs.removeAll(orgId)
    await this.contexts.removeAll(orgId)
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
    return await this.#recorded.track(this.#usable.obtainBuilt(orgId, manifest, options, readName(name)))
  }

  /**
   * Throws what a build of a Dockerfile with files is refused with, as far as its text and the names in it show it: `invalid_request`, `not_found`,
   * `conflict`.
   */
  async checkDockerfile(
    orgId: string,
    { dockerfile, target, buildArgs }: Pick<Manifest, 'dockerfile' | 'target' | 'buildArgs'>,
  ): Promise<void> {
    assertInput(dockerfile !== undefined, 'image.dockerfile', 'is missing')
    const { outline } = outlineOfDockerfile({ dockerfile, target, buildArgs, context: '' }, 'image')
    await this.#names.meaningsIn(orgId, outline)
  }

  /** Builds in the background: returns an image that is `building`. */
  async createDetached(
    orgId: string,
    name: string,
    manifest: Manifest,
    options: CreateOptions & NameOptions = {},
  ): Promise<Image> {
    const row = { name: readName(name), isDetached: true, ...options }
    const image = await this.#rows.findOrInsert(orgId, manifest, row)
    if (image.status === 'building') this.#recorded.detach(image)
    return image
  }

  /** Makes an image under a name of an OCI or docker archive. Throws `conflict` for a taken name, `invalid_request` with what is wrong. */
  async importArchive(
    orgId: string,
    name: string,
    archive: AsyncIterable<Uint8Array>,
    { replace = false, ...options }: Omit<BuildOptions, 'creation'> = {},
  ): Promise<Image> {
    const wanted = readName(name)
    const id = newId('img-')
    const hash = importHash(id)
    const manifest = { base: '', steps: [] }
    const draft = newImage(orgId, { id, contentHash: hash, layerHashes: [hash], manifest, isDetached: false })
    const image = await this.#rows.insert(draft, wanted, replace)
    return await this.#recorded.track(this.#recorded.finish(image, options, { archive }))
  }

  /**
   * Gives an image another name, such as `tools:3`. Removing one leaves the other. Throws `conflict` for a name that is taken, without `replace`,
   * and while the image is not ready.
   */
  async tag(orgId: string, nameOrId: string, name: string, { replace = false }: NameOptions = {}): Promise<Image> {
    const wanted = readName(name)
    const image = await this.get(orgId, nameOrId)
    return image.name === wanted ? image : await this.#rows.tag(image, wanted, replace)
  }

  /** Passes an OCI archive of an image on, see `ImageExports`. */
  async export<Result>(
    orgId: string,
    nameOrId: string,
    send: (archive: OciArchive) => Promise<Result>,
    signal: AbortSignal,
  ): Promise<Result> {
    const image = await this.get(orgId, nameOrId)
    return await this.#recorded.track(this.#exports.export(image, send, signal))
  }

  /**
   * Sends an image to a registry, with the credentials of the organisation alone, and returns the digest that it has there. Throws
   * `invalid_request` for a reference that is wrong or not allowed, and `unavailable` when the registry does not answer.
   */
  async push(orgId: string, nameOrId: string, reference: string, signal: AbortSignal): Promise<{ digest: string }> {
    const { checkpoints } = this.#deps.sandboxes
    checkpoints.assertImportable(reference, 'reference')
    const target = await this.registries.withCredentials(orgId, reference)
    const send = (archive: OciArchive) => checkpoints.push(archive.content(), target, signal)
    return await this.export(orgId, nameOrId, send, signal)
  }

  /** All images of an organisation, or those with a name, newest first, read page by page. */
  list(orgId: string, isNamed = false): AsyncIterable<Image> {
    return imagesOf(this.#deps.store, { orgId, isNamed })
  }

  /** By name or id. Throws `not_found`. */
  async get(orgId: string, nameOrId: string): Promise<Image> {
    const image = await this.#names.findOwn(orgId, nameOrId)
    if (image === undefined) throw await this.#names.notOwn(orgId, nameOrId)
    return image
  }

  /** By name or id; of another organisation only a published image, by name. */
  async getReadable(orgId: string, nameOrId: string): Promise<ReadableImage> {
    const image = await this.#names.findReadable(orgId, nameOrId)
    if (image === undefined) throw new ServiceError('not_found', `no image ${nameOrId}`)
    return image
  }

  /** Images with a name that sandboxes of the organisation may start from: its own, public ones, defined ones. */
  listUsable(orgId: string): AsyncIterable<ReadableImage> {
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
    await this.#publications.assertAllowed(orgId)
    return await this.#publications.set(await this.get(orgId, nameOrId), isPublic)
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
      const name = request.image.name === undefined ? undefined : readName(request.image.name)
      const { signal, onEvent } = options
      return await this.#recorded.track(
        this.#usable.obtainBuilt(orgId, request.image, { ...defined({ signal, onEvent }), isShared: true }, name),
      )
    }
    options.onEvent?.(logOf(0, 'resolve', `looking up snapshot ${request.snapshot}`))
    const image = await this.#usable.find(orgId, request.snapshot, options)
    if (image === undefined) throw await this.#names.unknown(orgId, request.snapshot, { field: 'snapshot' })
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
    const installed = canonicalName(nameOrId)
    if (installed.includes(':')) throw await this.#names.unknown(orgId, nameOrId, { field: 'templateID' })
    try {
      return await this.#deps.sandboxes.create(orgId, { ...input, image: installed }, defined({ creation }))
    } catch (error) {
      const isUnknown = isServiceError(error, 'not_found') && error.details['field'] === 'templateID'
      throw isUnknown ? await this.#names.unknown(orgId, nameOrId, { field: 'templateID', cause: error }) : error
    }
  }

  /**
   * The image that `templateID` names, if it is one of the organisation, a public or a defined one, which is built first if need be.
   * Installed images have other names.
   */
  async findNamed(orgId: string, nameOrId: string, { signal }: BuildOptions = {}): Promise<Image | undefined> {
    return canonicalName(nameOrId) === 'base'
      ? undefined
      : await this.#usable.find(orgId, nameOrId, defined({ signal }))
  }
}
