import { isServiceError, ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { imageNamePattern, imageNameRule } from '../lib/image-name.ts'
import { withRegistry } from '../lib/image-reference.ts'
import { listed } from '../lib/listed.ts'
import { nearest } from '../lib/nearest.ts'
import { sha256 } from '../lib/secret.ts'
import { assertInput, startDefaults } from '../sandbox/index.ts'
import type { Contexts } from './contexts.ts'
import { dockerfileHash, imagesIn, planStages, withLineOf } from './dockerfile-manifest.ts'
import type { Image } from './image.ts'
import { hashesOf, type ManifestOutline, planOf } from './manifest.ts'
import type { ImageServiceDeps } from './service.ts'
import { imagesOf } from './store.ts'

const defaultTag = ':latest'
/** What else is at `/api/images/NAME`. */
const reservedNames = new Set(['caches', 'contexts'])

/** The name of a new image as it is stored. Throws `invalid_request`. */
export function readName(name: string): string {
  assertInput(imageNamePattern.test(name), 'name', imageNameRule)
  assertInput(
    !isReserved(name),
    'name',
    `must not be ${[...reservedNames].join(' or ')}: the API has something else there`,
  )
  return canonicalName(name)
}

/** With any tag: a name that has tags is itself the one of `latest`. */
export function isReserved(name: string): boolean {
  return reservedNames.has(name.split(':', 1)[0] ?? '')
}

/** A name as it is stored: `tools` for `tools:latest`. */
export function canonicalName(name: string): string {
  return name.endsWith(defaultTag) ? name.slice(0, -defaultTag.length) : name
}

/** Names in an error. */
const reportedNamesMax = 20
/** Names that one that nobody knows is compared with. */
const comparedNamesMax = 1000

/** An image that an organisation may read. One that the operator has defined is not built before it is first named. */
export interface ReadableImage extends Omit<Image, 'status'> {
  status: Image['status'] | 'defined'
}

/** A text that changes with its content, and the reference of one that is not here. */
export interface NameInDockerfile {
  description: string
  reference?: string
}

interface Context extends Pick<ImageServiceDeps, 'store' | 'definitions' | 'operatorOrgId' | 'limits' | 'sandboxes'> {
  contexts: Pick<Contexts, 'open'>
}

/** What names of images stand for in an organisation: its own images, then public ones, then those that the operator has defined. */
export class ImageNames {
  readonly #context: Context

  constructor(context: Context) {
    this.#context = context
  }

  /** By name or id. */
  async findOwn(orgId: string, nameOrId: string): Promise<Image | undefined> {
    const { store } = this.#context
    return (await store.imageNamed(canonicalName(nameOrId), orgId)) ?? (await store.image(nameOrId, orgId))
  }

  /** An image that the organisation may read: its own, a public one by name, or a defined one, which may not be built yet. */
  async findReadable(orgId: string, nameOrId: string): Promise<ReadableImage | undefined> {
    return (await this.#findVisible(orgId, nameOrId)) ?? (await this.#describeDefined(canonicalName(nameOrId)))
  }

  /** An image that sandboxes of the organisation may start from. Throws `conflict` while it is not ready. */
  async findUsable(orgId: string, nameOrId: string): Promise<Image | undefined> {
    const image = await this.#findVisible(orgId, nameOrId)
    if (image !== undefined && (image.status !== 'ready' || image.checkpointId === undefined)) throw notReady(image)
    return image
  }

  /** An image of the organisation by name or id, or a public one by name. */
  async #findVisible(orgId: string, nameOrId: string): Promise<Image | undefined> {
    const { store } = this.#context
    return (await this.findOwn(orgId, nameOrId)) ?? (await store.publicImageNamed(canonicalName(nameOrId)))
  }

  /** Images with a name that sandboxes of the organisation may start from: its own, public ones, defined ones. */
  async *listUsable(orgId: string): AsyncGenerator<ReadableImage> {
    const { store, definitions } = this.#context
    const names = new Set<string | undefined>()
    const named = { isNamed: true }
    for await (const image of imagesOf(store, { orgId, ...named })) {
      names.add(image.name)
      yield image
    }
    for await (const image of imagesOf(store, named)) {
      if (image.orgId === orgId) continue
      names.add(image.name)
      yield image
    }
    for (const name of definitions.keys()) {
      const image = names.has(name) ? undefined : await this.#describeDefined(name)
      if (image !== undefined) yield image
    }
  }

  /** The error of a start from an image that does not exist, with names of those that do. */
  async unknown(
    orgId: string,
    name: string,
    { field, cause }: { field: 'snapshot' | 'templateID' | 'dockerfile'; cause?: ServiceError },
  ): Promise<ServiceError> {
    const names: string[] = [startDefaults.image]
    for await (const image of this.listUsable(orgId)) {
      if (image.status === 'failed') continue
      if (names.push(image.name ?? image.id) > reportedNamesMax) break
    }
    const message = `no image ${name}; there are ${listed(names, reportedNamesMax)}`
    return new ServiceError('not_found', message, { cause, details: { field } })
  }

  /** The image that a misspelt name most likely means. */
  async nearest(orgId: string, name: string): Promise<string | undefined> {
    const names: string[] = [startDefaults.image]
    for await (const image of this.listUsable(orgId)) {
      if (image.status !== 'failed') names.push(image.name ?? image.id)
      if (names.length >= comparedNamesMax) break
    }
    return nearest(canonicalName(name), names)
  }

  /** The error of a request that only the owner of an image may make, or nobody. */
  async notOwn(orgId: string, nameOrId: string): Promise<ServiceError> {
    const name = canonicalName(nameOrId)
    const isShared = (await this.findReadable(orgId, name)) !== undefined
    const why =
      name === startDefaults.image
        ? `: the installed image ${name} belongs to the server, which neither removes nor changes it`
        : isShared
          ? ` of this organisation: the server shares ${name}, and only its operator may change it`
          : ''
    return new ServiceError('not_found', `no image ${nameOrId}${why}`)
  }

  /** The hashes of an image and its layers, of which an OCI image is the first. */
  async hashesOf(orgId: string, outline: ManifestOutline): Promise<Pick<Image, 'contentHash' | 'layerHashes'>> {
    const { base, oci } = outline
    if (outline.dockerfile !== undefined) return await this.#hashesOfDockerfile(orgId, outline)
    if (oci === undefined) return await hashesOf(outline, await this.#describeBase(orgId, base))
    const { contentHash, layerHashes } = await hashesOf(outline, `oci ${oci}`)
    return { contentHash, layerHashes: [importHash(oci), ...layerHashes] }
  }

  /** Its layers are known once it is built: they depend on the variables of its bases. */
  async #hashesOfDockerfile(
    orgId: string,
    outline: ManifestOutline,
  ): Promise<Pick<Image, 'contentHash' | 'layerHashes'>> {
    const images = await this.meaningsIn(orgId, outline)
    const contextDigest = await this.#digestOfContext(orgId, outline.context)
    const contentHash = dockerfileHash(outline, { images, ...defined({ contextDigest }) })
    return { contentHash, layerHashes: [] }
  }

  /** A text for each image that a Dockerfile names, which changes with its content. Throws as `meaningOf`. */
  async meaningsIn(orgId: string, outline: ManifestOutline): Promise<Map<string, string>> {
    const images = new Map<string, string>()
    const plan = planStages(outline)
    for (const name of imagesIn(plan)) {
      const { description } = await withLineOf(plan, name, () => this.meaningOf(orgId, name))
      images.set(name, description)
    }
    return images
  }

  async #digestOfContext(orgId: string, id: string | undefined): Promise<string | undefined> {
    if (id === undefined) return undefined
    using context = await this.#context.contexts.open(orgId, id)
    return context.digest
  }

  /**
   * What a name in a Dockerfile stands for: an image that is here, or one of a registry. Throws `conflict` for one that is not ready, `not_found`
   * for one that can be neither.
   */
  async meaningOf(orgId: string, name: string): Promise<NameInDockerfile> {
    const { definitions, sandboxes } = this.#context
    const isHere =
      canonicalName(name) === startDefaults.image ||
      definitions.has(canonicalName(name)) ||
      (await this.#findVisible(orgId, name)) !== undefined
    if (isHere) return { description: await this.#describeBase(orgId, name) }
    const reference = withRegistry(name)
    try {
      sandboxes.checkpoints.assertImportable(reference)
    } catch (error) {
      if (!isServiceError(error) || reference === name) throw error
      throw await this.unknown(orgId, name, { field: 'dockerfile', cause: error })
    }
    return { description: `oci ${reference}`, reference }
  }

  /** A text that changes with the content of the base. */
  async #describeBase(orgId: string, given: string): Promise<string> {
    const base = canonicalName(given)
    const { definitions, operatorOrgId, limits } = this.#context
    const image = base === startDefaults.image ? undefined : await this.findUsable(orgId, base)
    if (image !== undefined) return `${base} ${image.contentHash}`
    const manifest = definitions.get(base)
    if (manifest === undefined) return base
    const { outline } = await planOf(manifest, limits)
    const { contentHash } = await this.hashesOf(await operatorOrgId(), outline)
    return `${base} ${contentHash}`
  }

  /** The newest image of a definition's content, or what is known before its first build. */
  async #describeDefined(name: string): Promise<ReadableImage | undefined> {
    const { definitions, operatorOrgId, store, limits } = this.#context
    const manifest = definitions.get(name)
    if (manifest === undefined) return undefined
    const orgId = await operatorOrgId()
    const { outline } = await planOf(manifest, limits)
    // One whose base is not there is told when it is named.
    const hashes = await this.hashesOf(orgId, outline).catch((error: unknown) => {
      if (!isServiceError(error)) throw error
      return { contentHash: '', layerHashes: [] }
    })
    const [row] = await store.imagesOf(hashes.contentHash, orgId)
    const image = row ?? newImage(orgId, { ...hashes, id: name, manifest: outline, isDetached: true })
    return { ...image, name, isPublic: true, status: row?.status ?? 'defined' }
  }
}

/** A row that is `building`. */
export function newImage(
  orgId: string,
  given: Pick<Image, 'id' | 'name' | 'replaces' | 'contentHash' | 'layerHashes' | 'manifest' | 'isDetached'>,
): Image {
  const now = new Date()
  const memoryMb = given.manifest.runtimeMemoryMB ?? startDefaults.memoryMb
  return { ...given, orgId, status: 'building', memoryMb, isPublic: false, createdAt: now, lastUsedAt: now }
}

/** Hash of the layer that an import makes. */
export function importHash(what: string): string {
  return sha256(`import ${what}`)
}

export function notReady({ id, name = id, status, failure }: Image): ServiceError {
  const why =
    status === 'failed' ? `its build has failed: ${failure?.message ?? 'no reason known'}` : 'it is being built'
  return new ServiceError('conflict', `image ${name} is not ready: ${why}`, { details: { reason: 'not_ready' } })
}
