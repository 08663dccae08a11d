import { ServiceError } from '../errors.ts'
import { listed } from '../lib/listed.ts'
import { sha256 } from '../lib/secret.ts'
import { assertInput, startDefaults } from '../sandbox/index.ts'
import type { Image } from './image.ts'
import { hashesOf, type ManifestOutline, planOf } from './manifest.ts'
import type { ImageServiceDeps } from './service.ts'
import { imagesOf } from './store.ts'

const namePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/

export function assertName(name: string): void {
  assertInput(
    namePattern.test(name),
    'name',
    'must be 1 to 128 letters, digits, `.`, `_` and `-`, the first a letter or digit',
  )
}

/** Names in an error. */
const reportedNamesMax = 20

type Context = Pick<ImageServiceDeps, 'store' | 'definitions' | 'operatorOrgId' | 'limits'>

/** What names of images stand for in an organisation: its own images, then public ones, then those that the operator has defined. */
export class ImageNames {
  readonly #context: Context

  constructor(context: Context) {
    this.#context = context
  }

  /** By name or id. */
  async findOwn(orgId: string, nameOrId: string): Promise<Image | undefined> {
    const { store } = this.#context
    return (await store.imageNamed(nameOrId, orgId)) ?? (await store.image(nameOrId, orgId))
  }

  /** An image that the organisation may read: its own, a public one by name, or a defined one, which may not be built yet. */
  async findReadable(orgId: string, nameOrId: string): Promise<Image | undefined> {
    return (await this.#findVisible(orgId, nameOrId)) ?? (await this.#describeDefined(nameOrId))
  }

  /** An image that sandboxes of the organisation may start from. Throws `conflict` while it is not ready. */
  async findUsable(orgId: string, nameOrId: string): Promise<Image | undefined> {
    const image = await this.#findVisible(orgId, nameOrId)
    if (image !== undefined && (image.status !== 'ready' || image.checkpointId === undefined)) throw notReady(image)
    return image
  }

  /** An image of the organisation by name or id, or a public one by name. */
  async #findVisible(orgId: string, nameOrId: string): Promise<Image | undefined> {
    return (await this.findOwn(orgId, nameOrId)) ?? (await this.#context.store.publicImageNamed(nameOrId))
  }

  /** Images with a name that sandboxes of the organisation may start from: its own, public ones, defined ones. */
  async *listUsable(orgId: string): AsyncGenerator<Image> {
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
  async unknown(orgId: string, name: string, cause?: ServiceError): Promise<ServiceError> {
    const names: string[] = [startDefaults.image]
    for await (const image of this.listUsable(orgId)) {
      if (names.push(image.name ?? image.id) > reportedNamesMax) break
    }
    return new ServiceError('not_found', `no image ${name}; there are ${listed(names, reportedNamesMax)}`, {
      ...(cause === undefined ? {} : { cause }),
      details: { field: cause === undefined ? 'snapshot' : 'templateID' },
    })
  }

  /** The hashes of an image and its layers, of which an OCI image is the first. */
  async hashesOf(orgId: string, outline: ManifestOutline): Promise<Pick<Image, 'contentHash' | 'layerHashes'>> {
    const { base, oci } = outline
    if (oci === undefined) return await hashesOf(outline, await this.#describeBase(orgId, base))
    const { contentHash, layerHashes } = await hashesOf(outline, `oci ${oci}`)
    return { contentHash, layerHashes: [importHash(oci), ...layerHashes] }
  }

  /** A text that changes with the content of the base. */
  async #describeBase(orgId: string, base: string): Promise<string> {
    const { definitions, operatorOrgId, limits } = this.#context
    const image = base === 'base' ? undefined : await this.findUsable(orgId, base)
    if (image !== undefined) return `${base} ${image.contentHash}`
    const manifest = definitions.get(base)
    if (manifest === undefined) return base
    const { outline } = await planOf(manifest, limits)
    const { contentHash } = await this.hashesOf(await operatorOrgId(), outline)
    return `${base} ${contentHash}`
  }

  /** The newest image of a definition's content; before the first build, one that only looks `ready`, since a request builds it. */
  async #describeDefined(name: string): Promise<Image | undefined> {
    const { definitions, operatorOrgId, store, limits } = this.#context
    const manifest = definitions.get(name)
    if (manifest === undefined) return undefined
    const orgId = await operatorOrgId()
    const { outline } = await planOf(manifest, limits)
    const hashes = await this.hashesOf(orgId, outline)
    const [row] = await store.imagesOf(hashes.contentHash, orgId)
    const image = row ?? newImage(orgId, { ...hashes, id: name, manifest: outline, isDetached: true })
    return { ...image, name, isPublic: true, status: row?.status ?? 'ready' }
  }
}

/** A row that is `building`. */
export function newImage(
  orgId: string,
  given: Pick<Image, 'id' | 'name' | 'contentHash' | 'layerHashes' | 'manifest' | 'isDetached'>,
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
