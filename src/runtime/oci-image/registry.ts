import { randomBytes } from 'node:crypto'
import { mkdir, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import { parseImageReference, type ImageReference } from '../../lib/image-reference.ts'
import { withinRun } from '../cleanup.ts'
import { OutOfMemory, type Job } from '../cgroups/work-groups.ts'
import { CommandError, reportable, type CommandOptions } from '../command.ts'
import { imageTooLarge, leastBytes, refuseImage, type ImageLimits } from './limits.ts'
import { digestOf, readManifest, type Manifest } from './manifest.ts'

/** A registry from which images may come. */
export interface Registry {
  /** With the port, if it is not that of HTTPS: `registry.example.com:5000`. */
  host: string
  username?: string
  password?: string
  /** The registry may speak HTTP, or show any certificate. */
  insecure?: boolean
}

const field = 'image.oci'
const reportedChars = 300

/** A finished download. The files in its folder are named after their digests. */
export interface Download {
  /** Digest of what the reference names, a manifest or an index. It pins the image. */
  digest: string
  manifest: Manifest
  fileOf: (digest: string) => string
}

/** Fetches images with skopeo, and only from registries that the operator has named: any other could be a service of the host's network. */
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
  parse(text: string): ImageReference {
    const reference = parseImageReference(text)
    if (reference === undefined) {
      throw refuseImage(field, 'must be REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST')
    }
    if (this.#registryOf(reference) === undefined) {
      const hosts = this.#registries.map(({ host }) => host)
      const allowed = hosts.length === 0 ? 'names none' : `names ${hosts.join(', ')}`
      throw refuseImage(field, `is in a registry that is not allowed here: ATOLL_REGISTRIES ${allowed}`)
    }
    return reference
  }

  /** Removes credentials that a dead server has left. */
  async removeSecrets(): Promise<void> {
    await rm(this.#secretsDir, { recursive: true, force: true })
  }

  /**
   * Fetches an image into an empty folder. A tag is resolved once; all later requests are by digest. Throws `invalid_request` for what is
   * wrong with the image, `too_large`, `unavailable` when the registry does not answer, and the signal's reason.
   */
  async fetch(job: Job, text: string, folder: string, signal: AbortSignal): Promise<Download> {
    const reference = this.parse(text)
    const registry = this.#registryOf(reference)!
    const { repository, tag, digest: wanted } = reference
    const name = `docker://${registry.host}/${repository}`
    const authFile = await this.#writeSecret(registry)
    const options = { job, registry, authFile, signal }
    try {
      const named = await this.#inspect(wanted === undefined ? `${name}:${tag}` : `${name}@${wanted}`, options)
      const digest = await digestOf(named)
      if (wanted !== undefined && digest !== wanted) throw wrongDigest(registry)
      let found = await readManifest(named, field, this.#limits)
      let pinned = digest
      if ('instance' in found) {
        pinned = found.instance
        const instance = await this.#inspect(`${name}@${pinned}`, options)
        if ((await digestOf(instance)) !== pinned) throw wrongDigest(registry)
        found = await readManifest(instance, field, this.#limits)
      }
      if ('instance' in found) throw refuseImage(field, 'is a list of lists of images')
      await this.#copy(`${name}@${pinned}`, folder, options)
      return { digest, manifest: found, fileOf: (part) => `${folder}/image/${part.slice('sha256:'.length)}` }
    } finally {
      await rm(authFile, { force: true })
    }
  }

  #registryOf({ registry }: ImageReference): Registry | undefined {
    return this.#registries.find(({ host }) => host === registry)
  }

  async #inspect(name: string, { job, registry, authFile, signal }: SkopeoOptions): Promise<Buffer> {
    const argv = ['skopeo', '--insecure-policy', 'inspect', '--raw', '--authfile', authFile] as const
    const secure = `--tls-verify=${registry.insecure !== true}`
    const options = { timeoutMs: this.#limits.answerMs, signal }
    return Buffer.from(await skopeo(job, registry, [...argv, secure, name], options))
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
        stalled.abort(unavailable(registry, `sends less than ${this.#limits.bytesPerSecondMin} bytes a second`))
    })
    try {
      const command = [...argv, authFile, secure, name, `dir:${folder}/image`] as const
      const timeoutMs = this.#limits.stepMs
      await skopeo(job, registry, command, { timeoutMs, signal: AbortSignal.any([signal, stalled.signal]) })
    } finally {
      done.abort()
      await watch
    }
  }

  async #writeSecret({ host, username, password }: Registry): Promise<string> {
    const file = `${this.#secretsDir}/${randomBytes(8).toString('hex')}.json`
    const auth = Buffer.from(`${username ?? ''}:${password ?? ''}`).toString('base64')
    // Without this file skopeo would use the credentials of a user who logged in on this machine.
    const auths = username === undefined ? {} : { [host]: { auth } }
    await withinRun(mkdir(this.#secretsDir, { recursive: true, mode: 0o700 }))
    await withinRun(writeFile(file, JSON.stringify({ auths }), { mode: 0o600 }))
    return file
  }
}

async function skopeo(
  job: Job,
  registry: Registry,
  argv: readonly [string, ...string[]],
  options: CommandOptions,
): Promise<string> {
  try {
    return await job.run(argv, options)
  } catch (error) {
    if (error instanceof OutOfMemory) throw imageTooLarge(field, `cannot be fetched: ${error.message}`, error)
    if (!(error instanceof CommandError)) throw error
    throw reasonOf(registry, error)
  }
}

interface SkopeoOptions {
  job: Job
  registry: Registry
  authFile: string
  signal: AbortSignal
}

function unavailable({ host }: Registry, message: string, cause?: unknown): ServiceError {
  return new ServiceError('unavailable', `the registry ${host} ${message}`, { cause })
}

function wrongDigest({ host }: Registry): ServiceError {
  return refuseImage(field, `has another content in the registry ${host} than its digest says`)
}

/** Finds the kind of a fault in the words of skopeo, which has no codes. */
function reasonOf(registry: Registry, error: CommandError): ServiceError {
  const { outcome, stderr } = error
  if (outcome === 'is not installed') {
    return new ServiceError('unavailable', 'skopeo is not installed, which fetches images: run npm run setup')
  }
  if (outcome === 'took too long') return unavailable(registry, 'does not answer in time', error)
  if (/quota exceeded|no space left/i.test(stderr)) return imageTooLarge(field, 'does not fit into its room', error)
  if (/wrote too much/.test(outcome)) return imageTooLarge(field, 'has too large a manifest', error)
  if (/digest did not match|does not match|mismatch/i.test(stderr)) return wrongDigest(registry)
  if (/manifest unknown|name unknown|not found|status 404|status: 404/i.test(stderr)) {
    return refuseImage(field, `is not in the registry ${registry.host}`, error)
  }
  if (/unauthorized|authentication required|denied|forbidden|status 40[13]/i.test(stderr)) {
    return refuseImage(field, `may not be read from the registry ${registry.host}`, error)
  }
  const [said = ''] = stderr.trim().split('\n').slice(-1)
  const words = /msg="?(.*?)"?$/.exec(said)?.[1] ?? said
  return unavailable(registry, `does not give the image: ${reportable(words, [], reportedChars)}`, error)
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
