import { createWriteStream } from 'node:fs'
import { mkdir, readFile, realpath, rm, stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import { firstFault } from '../../lib/first-fault.ts'
import { digestPattern } from '../../lib/image-reference.ts'
import { exists } from '../exists.ts'
import { imageTooLarge, leastBytes, refuseImage, type ImageLimits } from './limits.ts'
import { digestOf, readManifest } from './manifest.ts'
import type { Unpack } from './unpack.ts'

const field = 'archive'
/** An archive may have an index of one index of one manifest. */
const indexesMax = 2
/** Docker's manifest names a configuration and some layers, and is parsed without yielding. */
const dockerManifestBytesMax = 32 * 1024
const dockerManifest = z.array(z.object({ Config: z.string(), Layers: z.array(z.string()) }))

/** The files of an image, from an archive or a download. Paths are absolute. */
export interface ImageFiles {
  /** Digest of the manifest, or of the configuration where the format has no manifest with digests. */
  digest: string
  config: Buffer
  layers: string[]
}

/**
 * Writes an archive to a file. Throws `too_large`, `invalid_request` for one that stops in the middle or comes too slowly, and the
 * signal's reason.
 */
export async function storeArchive(
  archive: AsyncIterable<Uint8Array>,
  file: string,
  limits: ImageLimits,
  signal: AbortSignal,
): Promise<void> {
  const late = new AbortController()
  const abort = (why: string) => late.abort(refuseImage(field, why))
  let bytes = 0
  let before = 0
  const watch = setInterval(() => {
    if (bytes === before) abort('does not come any more')
    else if (bytes - before < leastBytes(limits)) abort(`comes slower than ${limits.bytesPerSecondMin} bytes a second`)
    before = bytes
  }, limits.stallMs)
  const whole = setTimeout(() => abort(`takes longer than ${limits.stepMs / 1000} s`), limits.stepMs)
  const bounded = async function* (chunks: AsyncIterable<Uint8Array>) {
    for await (const chunk of chunks) {
      bytes += chunk.length
      if (bytes > limits.downloadBytesMax) throw imageTooLarge(field, `has more than ${limits.downloadBytesMax} bytes`)
      yield chunk
    }
  }
  const ended = AbortSignal.any([signal, late.signal])
  const output = createWriteStream(file, { mode: 0o600 })
  try {
    const stored = pipeline(Readable.from(archive), bounded, output, { signal: ended })
    // A silent source may not react to the abort.
    await Promise.race([stored, rejectedBy(ended)])
  } catch (error) {
    // After an abort the stream throws an error of its own.
    ended.throwIfAborted()
    throw error
  } finally {
    output.destroy()
    clearInterval(watch)
    clearTimeout(whole)
  }
}

function rejectedBy(signal: AbortSignal): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>()
  const abort = () => reject(signal.reason as Error)
  signal.addEventListener('abort', abort, { once: true })
  if (signal.aborted) abort()
  return promise
}

/**
 * Unpacks an archive of `skopeo copy … oci-archive:` or `docker save` and finds the image in it. Reads nothing outside of the folder.
 * Throws `invalid_request` for anything else.
 */
export async function readArchive(file: string, folder: string, unpack: Unpack, limits: ImageLimits) {
  await mkdir(folder)
  await unpack({ blob: file, target: folder, plain: true, bytesMax: limits.downloadBytesMax })
  await rm(file)
  const root = await realpath(folder)
  const isLayout = await exists(`${root}/index.json`)
  return isLayout ? readLayout(root, limits) : readDockerArchive(root, limits)
}

async function readLayout(root: string, limits: ImageLimits): Promise<ImageFiles> {
  const blob = (digest: string) => `blobs/sha256/${digest.slice('sha256:'.length)}`
  let bytes = await readWithin(root, 'index.json', limits)
  for (let indexes = 0; indexes < indexesMax; indexes += 1) {
    const found = await readManifest(bytes, field, limits)
    if (!('instance' in found)) break
    bytes = await readWithin(root, blob(found.instance), limits, found.instance)
  }
  const manifest = await readManifest(bytes, field, limits)
  if ('instance' in manifest) throw refuseImage(field, 'has too many lists of images')
  const { config, layers } = manifest
  return {
    digest: await digestOf(bytes),
    config: await readWithin(root, blob(config.digest), limits, config.digest),
    layers: await Promise.all(layers.map(({ digest }) => within(root, blob(digest)))),
  }
}

async function readDockerArchive(root: string, limits: ImageLimits): Promise<ImageFiles> {
  if (!(await exists(`${root}/manifest.json`))) throw refuseImage(field, 'is neither an OCI nor a docker archive')
  const bytes = await readWithin(root, 'manifest.json', { manifestBytesMax: dockerManifestBytesMax })
  const { data, success } = dockerManifest.safeParse(jsonOf(bytes), firstFault)
  const [image, ...others] = data ?? []
  if (!success || image === undefined) throw refuseImage(field, 'has no manifest')
  if (others.length > 0) throw refuseImage(field, 'has several images')
  if (image.Layers.length > limits.layersMax) throw refuseImage(field, `has more than ${limits.layersMax} layers`)
  const config = await readWithin(root, image.Config, limits)
  return {
    digest: await digestOf(config),
    config,
    layers: await Promise.all(image.Layers.map((path) => within(root, path))),
  }
}

async function readWithin(
  root: string,
  path: string,
  limits: Pick<ImageLimits, 'manifestBytesMax'>,
  digest?: string,
): Promise<Buffer> {
  const file = await within(root, path)
  if ((await stat(file)).size > limits.manifestBytesMax) throw imageTooLarge(field, `has too large a file ${path}`)
  const bytes = await readFile(file)
  if (digest !== undefined && (!digestPattern.test(digest) || (await digestOf(bytes)) !== digest)) {
    throw refuseImage(field, `has another content than its digest ${digest} says`)
  }
  return bytes
}

/** The real path of a file of an archive, which may have links. Nothing changes the folder meanwhile. Throws `invalid_request`. */
async function within(root: string, path: string): Promise<string> {
  const real = path.includes('\0') ? undefined : await realpath(`${root}/${path}`).catch(() => undefined)
  const isWithin = real?.startsWith(`${root}/`) === true && (await stat(real)).isFile()
  if (!isWithin) throw refuseImage(field, `has no file ${JSON.stringify(path.slice(0, 200))}`)
  return real
}

function jsonOf(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch {
    return undefined
  }
}
