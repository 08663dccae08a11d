import { realpath } from 'node:fs/promises'
import { basename, normalize } from 'node:path'
import { ServiceError } from '../../errors.ts'
import { hostdProtocol } from '../../protocol/hostd.ts'
import { defined } from '../../lib/defined.ts'
import { run } from '../command.ts'
import { exists } from '../exists.ts'
import { hostToolIn } from '../host-names.ts'

const namePattern = /^[a-z0-9][a-z0-9._-]{0,63}$/
/** The part of an image that is mounted. */
const insides = { base: 'rootfs', guest: 'guest', agent: '' } as const
type Kind = keyof typeof insides

/**
 * Root file system, guest and agent of a sandbox, which a later upgrade does not change: each the name of a folder in the image
 * folder, such as `base-<hash>`; where a link of the image folder leads out of it, the absolute path of what is mounted.
 */
export interface Images {
  base: string
  guest: string
  agent?: string
}

/** Whether a value is a legal image reference. A name cannot lead out of the image folder. */
export function isImageReference(value: unknown): value is string {
  if (typeof value !== 'string') return false
  return value.startsWith('/') ? normalize(value) === value : namePattern.test(value)
}

/** The immutable images of one host, in one folder, and the links there to the current ones. */
export class ImageFolder {
  readonly path: string

  constructor(path: string) {
    this.path = path
  }

  /**
   * The images that `image` and the links for guest and agent stand for now. Throws `not_found` for an unknown image and
   * `unavailable` when the guest is missing.
   */
  async current(image: string): Promise<Images> {
    const [base, guest, agent] = await Promise.all([
      namePattern.test(image) ? this.#linked(image, 'base') : undefined,
      this.#linked('guest', 'guest'),
      this.#linked('agent', 'agent'),
    ])
    if (base === undefined) {
      const details = { field: 'templateID' }
      throw new ServiceError('not_found', `there is no image ${JSON.stringify(image)}`, { details })
    }
    if (guest === undefined) throw new ServiceError('unavailable', `no guest in ${this.path}: run npm run setup`)
    return { base, guest, ...defined({ agent }) }
  }

  /** The absolute path of what is mounted of an image that a record names. */
  pathOf(reference: string, kind: Kind): string {
    return reference.startsWith('/') ? reference : inside(`${this.path}/${reference}`, kind)
  }

  /**
   * Real paths of the programs of a sandbox: CRIU mounts them as the sandbox's own root user, which may not enter all folders on a path with
   * links.
   */
  async programs({ guest, agent }: Omit<Images, 'base'>): Promise<Omit<Images, 'base'>> {
    const real = (reference: string, kind: Kind) => realpath(this.pathOf(reference, kind))
    return { guest: await real(guest, 'guest'), ...defined({ agent: agent && (await real(agent, 'agent')) }) }
  }

  /** Throws `unavailable` with the name of an image that is not there. */
  async assertPresent({ base, guest, agent }: Images): Promise<void> {
    const named = { base, guest, ...defined({ agent }) }
    for (const [kind, reference] of Object.entries(named)) {
      if (await exists(this.pathOf(reference, kind as Kind))) continue
      const reported = reference.startsWith('/')
        ? `there is no image at ${reference}: put it back`
        : `image ${reference} is not in ${this.path}: put it back, or copy it from a machine that has it`
      throw new ServiceError('unavailable', reported)
    }
  }

  async #linked(link: string, kind: Kind): Promise<string | undefined> {
    const folder = await realpath(`${this.path}/${link}`).catch(() => undefined)
    if (folder === undefined || !(await exists(inside(folder, kind)))) return undefined
    const name = basename(folder)
    // The link may lead out of the image folder, to an image that has no name in there.
    const isNamed = namePattern.test(name) && (await realpath(`${this.path}/${name}`).catch(() => '')) === folder
    return isNamed ? name : inside(folder, kind)
  }
}

/** The real path of `atoll-hostd`, which an upgrade does not change. Throws `unavailable`. */
export async function resolveHostTool(imageDir: string): Promise<string> {
  const tool = await realpath(hostToolIn(imageDir)).catch(() => undefined)
  if (tool === undefined) throw new ServiceError('unavailable', `no atoll-hostd in ${imageDir}: run npm run setup`)
  const greeting = (await run([tool, 'version'])).trim()
  const spoken = /^\{"protocol":(\d+)/.exec(greeting)?.[1]
  if (Number(spoken) === hostdProtocol) return tool
  const version = spoken === undefined ? `is of version ${greeting}` : `speaks version ${spoken} of its protocol`
  const what = `atoll-hostd in ${imageDir} ${version}, this server version ${hostdProtocol} of the protocol`
  throw new ServiceError('unavailable', `${what}: run npm run setup`)
}

function inside(folder: string, kind: Kind): string {
  return insides[kind] === '' ? folder : `${folder}/${insides[kind]}`
}
