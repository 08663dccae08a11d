import { access, realpath } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'

const imageName = /^[a-z0-9][a-z0-9._-]{0,63}$/

export interface ResolvedImages {
  /** Root file system, guest binary and agent folder by their content-addressed paths. */
  base: string
  guest: string
  agent?: string
}

/**
 * Follows the links of the image folder to the immutable folders that they name now. Throws `not_found` for an unknown
 * image and `unavailable` when the guest is missing.
 */
export async function resolveImages(imageDir: string, image: string): Promise<ResolvedImages> {
  const [base, guest, agent] = await Promise.all([
    imageName.test(image) ? resolve(`${imageDir}/${image}`, 'rootfs') : undefined,
    resolve(`${imageDir}/guest`, 'guest'),
    resolve(`${imageDir}/agent`, ''),
  ])
  if (base === undefined) throw new ServiceError('not_found', `there is no image ${JSON.stringify(image)}`)
  if (guest === undefined) throw new ServiceError('unavailable', `no guest in ${imageDir}: run npm run setup`)
  return { base, guest, ...(agent === undefined ? {} : { agent }) }
}

/** The program of the host, by the link that setup keeps. */
export function hostToolIn(imageDir: string): string {
  return `${imageDir}/hostd/atoll-hostd`
}

/** The real path of that program: an upgrade does not change it. Throws `unavailable`. */
export async function resolveHostTool(imageDir: string): Promise<string> {
  const tool = await resolve(hostToolIn(imageDir), '')
  if (tool === undefined) throw new ServiceError('unavailable', `no atoll-hostd in ${imageDir}: run npm run setup`)
  return tool
}

async function resolve(link: string, below: string): Promise<string | undefined> {
  try {
    const folder = await realpath(link)
    const path = below === '' ? folder : `${folder}/${below}`
    await access(path)
    return path
  } catch {
    return undefined
  }
}
