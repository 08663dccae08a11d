import { isServiceError, ServiceError } from '../../errors.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { defined } from '../../lib/defined.ts'
import { newId } from '../../lib/id.ts'
import type { ImageSource } from '../../sandbox/index.ts'
import { readyCheckpoint } from '../checkpoint.ts'
import type { ImageConfig } from '../config.ts'
import type { Contexts } from '../contexts.ts'
import type { BuildEvent, BuildFailure, BuiltImage, Image, OciFacts } from '../image.ts'
import type { Publications } from '../publications.ts'
import type { Removal } from '../removal.ts'
import type { ImageServiceDeps } from '../service.ts'
import type { Bases } from '../usable-images.ts'
import { type Build, buildImage, type BuilderContext } from './builder.ts'
import { Builds, type Follower } from './builds.ts'
import { prepareDockerfile } from './dockerfile.ts'
import { type BuildFiles, keyOf } from './files.ts'
import type { BuildLogs, Emit } from './logs.ts'
import { checkpointName, logOf } from './sandbox.ts'
import type { Stage } from './stage.ts'
import { stepsOf } from './step-stage.ts'

const buildsOfAll = 8
/** Archives received and images fetched at a time, for each organisation. They hold no permit of a build. */
const importsOfOne = 2

/** The secrets of builds that are to begin, by image and id. They are in memory alone, until the build of the image has ended. */
export type BuildSecrets = Map<string, ReadonlyMap<string, Buffer>>

type ArchiveSource = Extract<ImageSource, { archive: unknown }>

/** The requests that wait for the build of one image, and what ends them. */
interface Wait {
  orgId: string
  /** Of the build. */
  key: string
  requests: number
  cancel: AbortController
  over: PromiseWithResolvers<void>
}

interface BuildInputs {
  source: ArchiveSource | undefined
  secrets: ReadonlyMap<string, Buffer> | undefined
}

interface RecordedBuildsContext
  extends BuilderContext, Pick<ImageServiceDeps, 'store' | 'registryCredentials' | 'buildsAtOnceOf'> {
  files: BuildFiles
  contexts: Pick<Contexts, 'open'>
  secrets: BuildSecrets
  logs: BuildLogs
  publications: Publications
  removal: Removal
  bases: Bases
}

/** Runs builds and writes their ends to the rows of images. Rows with the same content share one build (`Builds`). */
export class RecordedBuilds {
  readonly #context: RecordedBuildsContext
  readonly #builds: Builds
  readonly #semaphore: Semaphore
  readonly #imports = new Semaphore({ permitsPerKey: importsOfOne })
  /** By image. */
  readonly #waits = new Map<string, Wait>()
  /** The ends of all requests and detached builds. */
  readonly #running = new Set<Promise<unknown>>()
  #isClosing = false

  constructor(context: RecordedBuildsContext) {
    this.#context = context
    const { buildsAtOnce } = context.limits
    const permitsPerKey = (orgId: string) => context.buildsAtOnceOf?.(orgId) ?? buildsAtOnce
    this.#semaphore = new Semaphore({ permits: buildsOfAll, permitsPerKey })
    this.#builds = new Builds(async (key) => {
      for (const [id, { key: ofWait, orgId }] of this.#waits)
        if (ofWait === key) await context.logs.keep({ orgId, id }, { key })
      // The next start goes on with detached builds.
      if (this.#isClosing) return
      await context.files.remove(key)
      await context.logs.remove({ key })
    })
  }

  /** Ends builds; detached ones stay for the next start. */
  async close(): Promise<void> {
    this.#isClosing = true
    for (const { cancel } of this.#waits.values())
      cancel.abort(new ServiceError('unavailable', 'the server is stopping'))
    await Promise.allSettled(this.#running)
    await this.#builds.settled()
  }

  /** Makes `close` wait for work that may begin a build. */
  async track<Result>(work: Promise<Result>): Promise<Result> {
    this.#running.add(work)
    try {
      return await work
    } finally {
      this.#running.delete(work)
    }
  }

  /** Ends the build of an image for all requests, and returns when that is recorded. */
  async cancel(imageId: string, reason: ServiceError): Promise<void> {
    this.#waits.get(imageId)?.cancel.abort(reason)
    await this.waitForEnd(imageId)
  }

  /** Likewise, of all images of an organisation. */
  async cancelAll(orgId: string, reason: ServiceError): Promise<void> {
    const waits = [...this.#waits.values()].filter((wait) => wait.orgId === orgId)
    for (const { cancel } of waits) cancel.abort(reason)
    await Promise.all(waits.map(({ over }) => over.promise))
  }

  /** Follows a build to its end. */
  async watch(image: Image, follower: Follower): Promise<void> {
    await this.#builds.watch(keyOf(image), follower)
  }

  /** Returns when the end of a build is recorded, which is later than the end itself. */
  async waitForEnd(imageId: string): Promise<void> {
    await this.#waits.get(imageId)?.over.promise
  }

  detach(image: Image): void {
    this.track(this.finish(image, {})).catch((error: unknown) => {
      if (!isServiceError(error)) this.#context.log.error({ err: error, imageId: image.id }, 'a build failed')
    })
  }

  /** Waits for the build of an image and records its end. An abort deletes the image; a detached one stays for the next start. */
  async finish(image: Image, { signal, onEvent }: Follower, source?: ArchiveSource): Promise<Image> {
    const { store, publications, removal, log } = this.#context
    const { id, orgId, isDetached } = image
    const key = keyOf(image)
    const wait: Wait = this.#waits.get(id) ?? {
      ...{ orgId, key },
      requests: 0,
      cancel: new AbortController(),
      over: Promise.withResolvers<void>(),
    }
    this.#waits.set(id, wait)
    wait.requests += 1
    const { cancel } = wait
    const given = signal === undefined ? cancel.signal : AbortSignal.any([signal, cancel.signal])
    const secrets = this.#context.secrets.get(id)
    try {
      const build = (tell: (event: BuildEvent) => void, ended: AbortSignal) =>
        this.#context.logs.record(key, (note) => {
          const emit: Emit = (event) => {
            tell(event)
            return note(event)
          }
          return this.#build(image, { source, secrets }, emit, ended)
        })
      const follower = { ...defined({ onEvent }), signal: given }
      const built = await this.#builds.join(key, build, follower)
      const { checkpointId } = built
      const change = { ...built, status: 'ready', lastUsedAt: new Date() } as const
      const ready = await publications.record(image, change)
      if (ready !== undefined) return ready
      await removal.removeCheckpoints([{ id: checkpointId, orgId }])
      throw new ServiceError('conflict', `image ${image.name ?? id} was deleted`)
    } catch (error) {
      if (given.aborted) {
        const isKept = wait.requests > 1 || (isDetached && this.#isClosing)
        if (!isKept) await removal.remove(orgId, id)
      } else {
        if (!isServiceError(error)) log.error({ err: error, imageId: id }, 'the build of an image failed')
        await store.updateImage(id, { status: 'failed', failure: failureOf(error) })
      }
      throw error
    } finally {
      wait.requests -= 1
      if (wait.requests === 0) {
        this.#waits.delete(id)
        this.#context.secrets.delete(id)
        wait.over.resolve()
      }
    }
  }

  async #build(image: Image, { source, secrets }: BuildInputs, emit: Emit, signal: AbortSignal): Promise<BuiltImage> {
    const { orgId, manifest: outline, layerHashes, memoryMb } = image
    if (outline.dockerfile !== undefined) return await this.#buildDockerfile(image, secrets, emit, signal)
    const reference = outline.oci === undefined ? undefined : { reference: outline.oci }
    const from = source ?? reference ?? (await this.#context.bases.originOf(orgId, outline.base, { signal }))
    const permit = { key: orgId, signal }
    const files = { files: this.#context.files, key: keyOf(image) }
    const { defaults } = outline
    const build = (hashes: readonly string[], stage: Omit<Stage, 'steps'>) => {
      const stages = [{ ...stage, steps: stepsOf(outline, hashes, files) }]
      const work = () => this.#run({ orgId, outline, memoryMb, stages, ...defined({ defaults }) }, emit, signal)
      return this.#semaphore.use(work, permit)
    }
    if ('image' in from || 'checkpointId' in from) return { checkpointId: await build(layerHashes, { from }) }
    const { checkpointId, ...imported } = await this.#imports.use(() => this.#import(image, from, emit, signal), permit)
    const { oci } = imported
    const { cwd } = imported.config
    const config = { ...imported.config, ...defaults, envs: { ...imported.config.envs, ...defaults?.envs } }
    if (outline.steps.length === 0 && !outline.memory && cwd === undefined) return { checkpointId, oci, config }
    const stage = { from: { checkpointId }, ...defined({ cwd }) }
    return { checkpointId: await build(layerHashes.slice(1), stage), oci, config }
  }

  async #run(build: Build, emit: Emit, signal: AbortSignal): Promise<string> {
    const context = this.#context
    return await context.layers.use(build.orgId, () => buildImage(context, build, emit, signal))
  }

  async #buildDockerfile(
    image: Image,
    secrets: ReadonlyMap<string, Buffer> | undefined,
    emit: Emit,
    signal: AbortSignal,
  ): Promise<BuiltImage> {
    const { contexts, bases, store } = this.#context
    const { orgId, contentHash, manifest: outline, memoryMb } = image
    using context = outline.context === undefined ? undefined : await contexts.open(orgId, outline.context)
    const { config, ...build } = await prepareDockerfile(image, { context, secrets, bases, emit, signal })
    // Before they are looked up: what a row names stays.
    const layerHashes = build.stages.flatMap(({ steps }) => steps.map(({ hash }) => hash))
    await store.addLayerHashes(orgId, contentHash, layerHashes)
    const work = () => this.#run({ orgId, outline, memoryMb, ...build }, emit, signal)
    const checkpointId = await this.#semaphore.use(work, { key: orgId, signal })
    return { checkpointId, config, layerHashes }
  }

  /** The checkpoint of an OCI image, which is the first layer of an image on it. */
  async #import(
    { orgId, layerHashes: [hash = ''] }: Image,
    source: ImageSource,
    emit: Emit,
    signal: AbortSignal,
  ): Promise<{ checkpointId: string; oci: OciFacts; config: ImageConfig }> {
    const { store, sandboxes } = this.#context
    const [layer] = await store.layers(orgId, [hash])
    const checkpoint = layer && (await readyCheckpoint(sandboxes, orgId, layer.checkpointId))
    const known = await store.importedImage(orgId, hash)
    if (checkpoint !== undefined && known?.oci !== undefined) {
      await emit(logOf(0, 'import', `image ${known.oci.digest} is there`))
      const { oci, config: { cwd: _cwd, user: _user, ...facts } = {} } = known
      const { entrypoint, cmd } = oci
      // Variables, folder and user of that image may be those of its own steps.
      const { envs, commandDefaults: { cwd, user } = {} } = checkpoint.sandboxConfig
      return {
        checkpointId: checkpoint.id,
        oci,
        config: { ...facts, entrypoint, cmd, envs, ...defined({ cwd, user }) },
      }
    }
    await emit(logOf(0, 'import', 'reference' in source ? `fetching ${source.reference}` : 'reading the archive'))
    const id = newId('cp-')
    const { registryCredentials } = this.#context
    const from = 'reference' in source ? await registryCredentials.withCredentials(orgId, source.reference) : source
    const input = { id, name: checkpointName(id), source: from }
    const { digest, config } = await sandboxes.checkpoints.import(orgId, input, signal)
    await store.putLayer({ orgId, hash, checkpointId: id })
    await emit(logOf(0, 'import', `image ${digest}`))
    const { env, ...facts } = config
    const { entrypoint, cmd } = facts
    return { checkpointId: id, oci: { digest, entrypoint, cmd }, config: { ...facts, envs: env } }
  }
}

function failureOf(error: unknown): BuildFailure {
  if (!(error instanceof ServiceError)) return { message: 'the server failed' }
  const { step, type, line, exitCode, stderr } = error.details as Partial<BuildFailure>
  return { message: error.message, ...defined({ step, type, line, exitCode, stderr }) }
}
