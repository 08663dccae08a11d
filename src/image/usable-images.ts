import { isServiceError, ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { startDefaults } from '../sandbox/index.ts'
import type { Follower } from './build/builds.ts'
import type { Base } from './build/dockerfile-stages.ts'
import type { RecordedBuilds } from './build/recorded-builds.ts'
import { logOf } from './build/sandbox.ts'
import type { Origin } from './build/stage.ts'
import { readyCheckpoint } from './checkpoint.ts'
import type { Image } from './image.ts'
import type { Manifest } from './manifest.ts'
import { canonicalName, type ImageNames } from './names.ts'
import type { ImageRows } from './rows.ts'
import type { BuildOptions, ImageServiceDeps } from './service.ts'

interface UsableImagesContext extends Pick<ImageServiceDeps, 'store' | 'sandboxes' | 'definitions' | 'operatorOrgId'> {
  names: ImageNames
  rows: ImageRows
  recorded: RecordedBuilds
  /** Follows a build to its end. */
  follow: (orgId: string, nameOrId: string, follower: Follower) => Promise<Image>
}

/** What builds begin with. */
export interface Bases {
  /** The base of a manifest with steps. */
  originOf: (orgId: string, base: string, follower: Follower) => Promise<Origin>
  /** What a name in a Dockerfile stands for. */
  findBase: (orgId: string, name: string, follower: Follower) => Promise<Base>
}

/** A start from an image is recorded at most once in this time. */
const usedEveryMs = 60_000

/** Images that are there, or are built because they were named. */
export class UsableImages implements Bases {
  readonly #context: UsableImagesContext

  constructor(context: UsableImagesContext) {
    this.#context = context
  }

  /** By a name that its organisation may use; a defined one is built first. Throws `conflict` while it is not ready, `build_failed`. */
  async find(orgId: string, nameOrId: string, { signal, onEvent }: Follower): Promise<Image | undefined> {
    const image =
      (await this.#context.names.findUsable(orgId, nameOrId)) ??
      (await this.#buildDefined(nameOrId, defined({ signal, onEvent })))
    if (image !== undefined) await this.#touch(image)
    return image
  }

  /**
   * The image of a definition: one without a name of the operator's organisation, so that a changed definition is another one. Its build goes on
   * when the client leaves. Throws `build_failed`.
   */
  async #buildDefined(given: string, follower: Follower): Promise<Image | undefined> {
    const name = canonicalName(given)
    const { definitions, operatorOrgId, sandboxes } = this.#context
    const manifest = definitions.get(name)
    if (manifest === undefined) return undefined
    const orgId = await operatorOrgId()
    let image = await this.#context.rows.findOrInsert(orgId, manifest, { isDetached: true })
    if (image.status === 'building') {
      this.#context.recorded.detach(image)
      image = await this.#context.follow(orgId, image.id, follower).catch((error: unknown) => {
        if (!isServiceError(error, 'build_failed')) throw error
        throw new ServiceError('build_failed', `image ${name}: ${error.message}`, { details: error.details })
      })
    }
    const { checkpointId = '' } = image
    const checkpoint = await readyCheckpoint(sandboxes, orgId, checkpointId)
    if (checkpoint !== undefined && !checkpoint.isPublic) await sandboxes.checkpoints.publish(orgId, checkpointId, true)
    return image
  }

  /** Builds an image and waits for it, if its content is not there. */
  async obtainBuilt(
    orgId: string,
    manifest: Manifest,
    { isShared = false, ...options }: BuildOptions & { isShared?: boolean },
    name?: string,
  ): Promise<Image> {
    const { signal, onEvent, creation, replace } = options
    const row = { isDetached: false, isShared, ...defined({ name, creation, replace }) }
    const image = await this.#context.rows.findOrInsert(orgId, manifest, row)
    if (image.status === 'ready') {
      onEvent?.(
        logOf(
          0,
          'cache_hit',
          `an image with this content is there, ${image.contentHash.slice(0, 12)}: nothing has to be built`,
        ),
      )
      await this.#touch(image)
      return image
    }
    return await this.#context.recorded.finish(image, defined({ signal, onEvent }))
  }

  /** What a build begins with. A defined base is built first, before this build takes a permit: the base needs one itself. */
  async originOf(orgId: string, given: string, follower: Follower): Promise<Origin> {
    const base = canonicalName(given)
    const image = base === startDefaults.image ? undefined : await this.find(orgId, base, follower)
    return image?.checkpointId === undefined ? { image: base } : { checkpointId: image.checkpointId }
  }

  /** An image of a registry is fetched as one without a name, which later builds share. */
  async findBase(orgId: string, name: string, follower: Follower): Promise<Base> {
    const { names, sandboxes } = this.#context
    const { description, reference } = await names.meaningOf(orgId, name)
    if (canonicalName(name) === startDefaults.image)
      return { origin: { image: startDefaults.image }, description, state: {} }
    const image =
      reference === undefined
        ? await this.find(orgId, canonicalName(name), follower)
        : await this.#fetched(orgId, { name, reference }, follower)
    const { checkpointId, config, oci } = image ?? {}
    if (checkpointId === undefined) throw await names.unknown(orgId, name, { field: 'dockerfile' })
    const { envs, commandDefaults } = (await sandboxes.checkpoints.usable(orgId, checkpointId)).sandboxConfig
    const ofImage = config ?? (oci && { entrypoint: oci.entrypoint, cmd: oci.cmd })
    const state = { envs, ...defined({ cwd: commandDefaults?.cwd, user: commandDefaults?.user, config: ofImage }) }
    return { origin: { checkpointId }, description, state, ...defined({ reference }) }
  }

  /** Of a name without a registry an error says that no image here has it either: it may be misspelt. */
  async #fetched(
    orgId: string,
    { name, reference }: { name: string; reference: string },
    follower: Follower,
  ): Promise<Image> {
    try {
      return await this.obtainBuilt(orgId, { oci: reference }, { ...follower, isShared: true })
    } catch (error) {
      if (!isServiceError(error) || error.code === 'internal_error' || reference === name) throw error
      const { code, message, details } = error
      const near = await this.#context.names.nearest(orgId, name)
      const here = `no image of this server is called ${name} either`
      const why = `${message}; ${here}${near === undefined ? '' : `: did you mean ${near}?`}`
      throw new ServiceError(code, why, { cause: error, details })
    }
  }

  async #touch(image: Image): Promise<void> {
    if (Date.now() - image.lastUsedAt.getTime() < usedEveryMs) return
    await this.#context.store.updateImage(image.id, { lastUsedAt: new Date() })
  }
}
