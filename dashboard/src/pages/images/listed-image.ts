import { queryOptions } from '@tanstack/react-query'
import type { ImageInfo, ImageManifest, TemplateInfo } from 'atoll-sdk'
import { client } from '../../account/client.ts'

/** What sandboxes can be started from: an image of the organisation, or what is known of another. */
export interface ListedImage {
  /** Its page is found by it. */
  nameOrId: string
  name?: string
  kind: 'own' | 'shared' | 'installed'
  status: ImageInfo['status'] | 'not built'
  madeOf: string
  isPublic: boolean
  sizeBytes?: number
  createdAt?: string
  lastUsedAt?: string
  error?: string
}

/** The image that setup installs on every server. */
export const installedImage = 'base'

/** All images by themselves, with and without a name, and what the server shares. */
export const imagesQuery = queryOptions({
  queryKey: ['images', 'list'],
  queryFn: async ({ signal }) => {
    const [own, usable] = await Promise.all([
      client.json<ImageInfo[]>('GET', '/api/images', { signal }),
      client.json<TemplateInfo[]>('GET', '/api/templates', { signal }),
    ])
    return listedOf(own, usable)
  },
})

/** Own ones first, newest first, then those of the server. */
export function listedOf(own: readonly ImageInfo[], usable: readonly TemplateInfo[]): ListedImage[] {
  const ids = new Set(own.map(({ id }) => id))
  const shared = usable.filter(({ id }) => !ids.has(id)).map(sharedImage)
  const installed: ListedImage = {
    nameOrId: installedImage,
    name: installedImage,
    kind: 'installed',
    status: 'ready',
    madeOf: 'setup',
    isPublic: true,
  }
  return [...own.map(ownImage), ...shared, installed]
}

function ownImage(info: ImageInfo): ListedImage {
  const { id, name, status, sizeBytes, createdAt, lastUsedAt, error } = info
  return {
    nameOrId: name ?? id,
    kind: 'own',
    status,
    madeOf: sourceText(info.manifest),
    isPublic: info.public,
    createdAt,
    lastUsedAt,
    ...(name === undefined ? {} : { name }),
    ...(sizeBytes === undefined ? {} : { sizeBytes }),
    ...(error === undefined ? {} : { error }),
  }
}

/** A definition of the operator is built when it is first named, and has no age before. */
function sharedImage({ name, status, templateType, createdAt }: TemplateInfo): ListedImage {
  const isBuilt = status !== 'processing'
  return {
    nameOrId: name,
    name,
    kind: 'shared',
    status: status === 'error' ? 'failed' : isBuilt ? status : 'not built',
    madeOf: templateType === 'dockerfile' ? 'Dockerfile' : 'steps',
    isPublic: true,
    ...(isBuilt ? { createdAt } : {}),
  }
}

/** What an image was made of, by what its manifest has. */
export function sourceText(manifest: ImageInfo['manifest']): string {
  const { dockerfile, oci, base, steps } = manifest as ImageManifest
  if (dockerfile !== undefined) return 'Dockerfile'
  if (oci !== undefined) return (steps?.length ?? 0) > 0 ? 'registry and steps' : 'registry'
  return base === '' ? 'archive' : 'steps'
}
