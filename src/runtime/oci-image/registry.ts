import { randomBytes } from 'node:crypto'
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseImageReference, type ImageReference } from '../../lib/image-reference.ts'
import type { RegistryCredentials } from '../../sandbox/ports/runtime-driver.ts'
import { withinRun } from '../cleanup.ts'
import type { Job } from '../cgroups/work-groups.ts'
import { leastBytes, refuseImage, type ImageField, type ImageLimits } from './limits.ts'
import { digestOf, readManifest, type Manifest } from './manifest.ts'
import { skopeo, unavailable, wrongDigest } from './skopeo.ts'

/** A registry from which images may come, and to which they may go. */
export interface Registry {
  /** With the port, if it is not that of HTTPS: `registry.example.com:5000`. */
  host: string
  username?: string
  password?: string
  /** The registry may speak HTTP, or show any certificate. */
  insecure?: boolean
}

const field = 'image.oci'

/** Where an archive of skopeo is, and where it goes. */
interface Push {
  /** A file. */
  archive: string
  /** Empty; on the disk of the archive. */
  folder: string
  reference: string
  credentials: RegistryCredentials | undefined
}

/** A finished download. The files in its folder are named after their digests. */
export interface Download {
  /** Digest of what the reference names, a manifest or an index. It pins the image. */
  digest: string
  manifest: Manifest
  fileOf: (digest: string) => string
}

/** Fetches and pushes images with skopeo, and only from and to registries that the operator has named: any other could be a service of the host's network. */
export class Registries {
  readonly #registries: readonly Registry[]
  /** A folder in `/run`, so that credentials are on no disk and on no command line. */
  readonly #secretsDir: string
  readonly #limits: ImageLimits

  constructor(registries: readonly Registry[], secretsDir: string, limits: ImageLimits) {
    this.#registries = registries
    this.#secretsDir = secretsDir
    this.#limits = limits
  }

  /** Parses a reference. Throws `invalid_request`, which names the allowed registries, for any other text. */
  parse(text: string, of: ImageField = field): ImageReference {
    const reference = parseImageReference(text)
    if (reference === undefined) {
      throw refuseImage(of, 'must be REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST')
    }
    if (this.#registryOf(reference) === undefined) {
      const hosts = this.#registries.map(({ host }) => host)
      const allowed = hosts.length === 0 ? 'names none' : `names ${hosts.join(', ')}`
      throw refuseImage(of, `is in a registry that is not allowed here: ATOLL_REGISTRIES ${allowed}`)
    }
    if (of === 'reference' && reference.digest !== undefined) throw refuseImage(of, 'must have a tag and no digest')
    return reference
  }

  /** Removes credentials that a dead server has left. */
  async removeSecrets(): Promise<void> {
    await rm(this.#secretsDir, { recursive: true, force: true })
  }

  /**
   * Fetches an image into an empty folder, with credentials in place of the operator's if some are given. A tag is resolved once; all later requests are by digest. Throws `invalid_request` for what is
   * wrong with the image, `too_large`, `unavailable` when the registry does not answer, and the signal's reason.
   */
  async fetch(
    job: Job,
    { reference: text, credentials }: { reference: string; credentials?: RegistryCredentials },
    folder: string,
    signal: AbortSignal,
  ): Promise<Download> {
    const reference = this.parse(text)
    const registry = { ...this.#registryOf(reference)!, ...credentials }
    const { repository, tag, digest: wanted } = reference
    const name = `docker://${registry.host}/${repository}`
    const authFile = await this.#writeSecret(registry)
    const options = { job, registry, authFile, signal }
    try {
      const named = await this.#inspect(wanted === undefined ? `${name}:${tag}` : `${name}@${wanted}`, options)
      const digest = await digestOf(named)
      if (wanted !== undefined && digest !== wanted) throw wrongDigest(registry.host)
      let found = await readManifest(named, field, this.#limits)
      let pinned = digest
      if ('instance' in found) {
        pinned = found.instance
        const instance = await this.#inspect(`${name}@${pinned}`, options)
        if ((await digestOf(instance)) !== pinned) throw wrongDigest(registry.host)
        found = await readManifest(instance, field, this.#limits)
      }
      if ('instance' in found) throw refuseImage(field, 'is a list of lists of images')
      await this.#copy(`${name}@${pinned}`, folder, options)
      return { digest, manifest: found, fileOf: (part) => `${folder}/image/${part.slice('sha256:'.length)}` }
    } finally {
      await rm(authFile, { force: true })
    }
  }

  /** Returns the digest that the image has in the registry. Throws like `fetch`. */
  async push(job: Job, { archive, folder, reference, credentials }: Push, signal: AbortSignal): Promise<string> {
    const { registry: named, repository, tag = 'latest' } = this.parse(reference, 'reference')
    const { host, insecure } = this.#registryOf({ registry: named })!
    const registry = { host, ...credentials }
    const authFile = await this.#writeSecret(registry)
    const digestFile = `${folder}/digest`
    const argv = [
      'skopeo',
      '--insecure-policy',
      '--tmpdir',
      folder,
      'copy',
      '--quiet',
      '--dest-authfile',
      authFile,
    ] as const
    const told = [`--dest-tls-verify=${insecure !== true}`, '--digestfile', digestFile] as const
    const command = [...argv, ...told, `oci-archive:${archive}`, `docker://${host}/${repository}:${tag}`] as const
    try {
      const options = { timeoutMs: this.#limits.stepMs, signal }
      await skopeo(job, { host, field: 'reference' }, command, options)
      return (await readFile(digestFile, 'utf8')).trim()
    } finally {
      await rm(authFile, { force: true })
    }
  }

  #registryOf({ registry }: Pick<ImageReference, 'registry'>): Registry | undefined {
    return this.#registries.find(({ host }) => host === registry)
  }

  async #inspect(name: string, { job, registry, authFile, signal }: SkopeoOptions): Promise<Buffer> {
    const argv = ['skopeo', '--insecure-policy', 'inspect', '--raw', '--authfile', authFile] as const
    const secure = `--tls-verify=${registry.insecure !== true}`
    const options = { timeoutMs: this.#limits.answerMs, signal }
    return Buffer.from(await skopeo(job, { host: registry.host, field }, [...argv, secure, name], options))
  }

  async #copy(name: string, folder: string, { job, registry, authFile, signal }: SkopeoOptions): Promise<void> {
    const temporary = `${folder}/temporary`
    await mkdir(temporary)
    await mkdir(`${folder}/image`)
    const argv = ['skopeo', '--insecure-policy', '--tmpdir', temporary, 'copy', '--quiet', '--src-authfile'] as const
    const secure = `--src-tls-verify=${registry.insecure !== true}`
    const stalled = new AbortController()
    const done = new AbortController()
    const watch = watchGrowth(`${folder}/image`, this.#limits, done.signal).then((isStalled) => {
      if (isStalled)
        stalled.abort(unavailable(registry.host, `sends less than ${this.#limits.bytesPerSecondMin} bytes a second`))
    })
    try {
      const command = [...argv, authFile, secure, name, `dir:${folder}/image`] as const
      const timeoutMs = this.#limits.stepMs
      await skopeo(job, { host: registry.host, field }, command, {
        timeoutMs,
        signal: AbortSignal.any([signal, stalled.signal]),
      })
    } finally {
      done.abort()
      await watch
    }
  }

  async #writeSecret({ host, username, password }: Omit<Registry, 'insecure'>): Promise<string> {
    const file = `${this.#secretsDir}/${randomBytes(8).toString('hex')}.json`
    const auth = Buffer.from(`${username ?? ''}:${password ?? ''}`).toString('base64')
    // Without this file skopeo would use the credentials of a user who logged in on this machine.
    const auths = username === undefined ? {} : { [host]: { auth } }
    await withinRun(mkdir(this.#secretsDir, { recursive: true, mode: 0o700 }))
    await withinRun(writeFile(file, JSON.stringify({ auths }), { mode: 0o600 }))
    return file
  }
}

interface SkopeoOptions {
  job: Job
  registry: Registry
  authFile: string
  signal: AbortSignal
}

/** Resolves to true when the files of a folder have not grown enough in `stallMs`, to false when the signal is aborted. */
async function watchGrowth(folder: string, limits: ImageLimits, done: AbortSignal): Promise<boolean> {
  let before = 0
  for (;;) {
    try {
      await sleep(limits.stallMs, undefined, { signal: done })
    } catch {
      return false
    }
    const bytes = await bytesIn(folder)
    if (bytes - before < leastBytes(limits)) return true
    before = bytes
  }
}

async function bytesIn(folder: string): Promise<number> {
  const names = await readdir(folder).catch(() => [])
  const sizes = names.map((name) =>
    stat(`${folder}/${name}`).then(
      ({ size }) => size + 1,
      () => 0,
    ),
  )
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}
