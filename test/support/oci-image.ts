/** Images and archives for tests, made from nothing: a tiny writer of tars, and what the OCI image specification puts around them. */
import { createHash } from 'node:crypto'
import { constants, gzipSync, zstdCompressSync } from 'node:zlib'

const block = 512
const architecture = process.arch === 'x64' ? 'amd64' : process.arch

export interface TarEntry {
  path: string
  /** A file if absent. */
  type?: 'folder' | 'link' | 'hardLink' | 'device' | 'fifo'
  content?: string | Buffer
  target?: string
  mode?: number
  uid?: number
  gid?: number
  /** Records of pax, such as `SCHILY.xattr.user.a`. */
  records?: Record<string, string>
}

const types = { file: '0', hardLink: '1', link: '2', device: '3', folder: '5', fifo: '6' }

export function tarOf(entries: readonly TarEntry[]): Buffer {
  const parts = entries.flatMap(({ records, ...entry }) => {
    if (records === undefined) return [header(entry)]
    const text = Buffer.from(Object.entries(records).map(record).join(''))
    return [header({ path: 'pax', content: text }, 'x'), header(entry)]
  })
  return Buffer.concat([...parts, Buffer.alloc(2 * block)])
}

function header(entry: Omit<TarEntry, 'records'>, type = types[entry.type ?? 'file']): Buffer {
  const { path, target = '', uid = 0, gid = 0 } = entry
  const content = Buffer.from(entry.content ?? '')
  const mode = entry.mode ?? (entry.type === 'folder' ? 0o755 : 0o644)
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, '0')}\0`
  const head = Buffer.alloc(block)
  head.write(path, 0, 100)
  head.write(octal(mode, 7) + octal(uid, 7) + octal(gid, 7) + octal(content.length, 11) + octal(1_700_000_000, 11), 100)
  head.write(`        ${type}`, 148)
  head.write(target, 157, 100)
  head.write('ustar\x0000', 257, 'latin1')
  head.write(
    `${octal(
      head.reduce((sum, byte) => sum + byte, 0),
      6,
    )} `,
    148,
  )
  return Buffer.concat([head, content, Buffer.alloc((block - (content.length % block)) % block)])
}

function record([key, value]: [string, string]): string {
  const rest = Buffer.byteLength(key + value) + 3
  const digits = String(rest + String(rest + 1).length).length
  return `${rest + digits} ${key}=${value}\n`
}

export interface ImageConfig {
  Env?: string[]
  WorkingDir?: string
  User?: string
  Entrypoint?: string[]
  Cmd?: string[]
  Labels?: Record<string, string>
  ExposedPorts?: Record<string, object>
  Volumes?: Record<string, object>
  StopSignal?: string
  Healthcheck?: object
  Shell?: string[]
}

export interface TestImage {
  manifest: Buffer
  digest: string
  /** The configuration and the layers, by their digests. */
  blobs: Map<string, Buffer>
  config: Buffer
  /** Uncompressed. */
  layers: readonly Buffer[]
}

type Compression = 'gzip' | 'zstd' | 'wide zstd' | 'none'
const compressions = {
  gzip: gzipSync,
  zstd: zstdCompressSync,
  /** Whoever unpacks it holds its last 64 MiB. */
  'wide zstd': (bytes: Buffer) => zstdCompressSync(bytes, { params: { [constants.ZSTD_c_windowLog]: 26 } }),
  none: (bytes: Buffer) => bytes,
}
const endings = { gzip: '+gzip', zstd: '+zstd', 'wide zstd': '+zstd', none: '' }

export function imageOf(
  layers: readonly Buffer[],
  options: { config?: ImageConfig; compression?: Compression; diffIds?: string[]; urls?: string[] } = {},
): TestImage {
  const { compression = 'gzip', diffIds = layers.map(digestOf), urls } = options
  const config = json({
    architecture,
    os: 'linux',
    config: options.config ?? {},
    rootfs: { type: 'layers', diff_ids: diffIds },
    history: [],
  })
  const packed = layers.map((layer) => compressions[compression](layer))
  const part = (mediaType: string, bytes: Buffer) => ({
    mediaType: `application/vnd.oci.image.${mediaType}`,
    digest: digestOf(bytes),
    size: bytes.length,
  })
  const manifest = json({
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.manifest.v1+json',
    config: part('config.v1+json', config),
    layers: packed.map((bytes) => ({
      ...part(`layer.v1.tar${endings[compression]}`, bytes),
      ...(urls ? { urls } : {}),
    })),
  })
  const blobs = new Map([config, ...packed].map((bytes) => [digestOf(bytes), bytes]))
  return { manifest, digest: digestOf(manifest), blobs, config, layers }
}

/** A list with one image for a machine that there is not, and with these for machines like this one. */
export function indexOf(...images: readonly TestImage[]): Buffer {
  const elsewhere = named(digestOf(Buffer.from('elsewhere')), 9, 's390x')
  return indexWith([elsewhere, ...images.map(({ digest, manifest }) => named(digest, manifest.length, architecture))])
}

function named(digest: string, size: number, machine: string) {
  const mediaType = 'application/vnd.oci.image.manifest.v1+json'
  return { mediaType, digest, size, platform: { architecture: machine, os: 'linux' } }
}

function indexWith(manifests: readonly ReturnType<typeof named>[]): Buffer {
  return json({ schemaVersion: 2, mediaType: 'application/vnd.oci.image.index.v1+json', manifests })
}

/** What `skopeo copy … oci-archive:` writes. */
export function ociArchiveOf(image: TestImage): Buffer {
  const blob = (digest: string, content: Buffer) => ({ path: `blobs/sha256/${digest.slice(7)}`, content })
  return tarOf([
    { path: 'oci-layout', content: '{"imageLayoutVersion":"1.0.0"}' },
    { path: 'index.json', content: indexWith([named(image.digest, image.manifest.length, architecture)]) },
    { path: 'blobs', type: 'folder' },
    blob(image.digest, image.manifest),
    ...[...image.blobs].map(([digest, content]) => blob(digest, content)),
  ])
}

/** What `docker save` wrote before it knew OCI. A layer that is there twice is a link the second time. */
export function dockerArchiveOf({ config, layers }: TestImage): Buffer {
  const name = `${digestOf(config).slice(7)}.json`
  const paths = layers.map((_, index) => `layer${index}/layer.tar`)
  return tarOf([
    { path: name, content: config },
    ...layers.map((content, index) => {
      const same = layers.findIndex((other) => other.equals(content))
      const path = paths[index] ?? ''
      return same === index ? { path, content } : { path, type: 'link' as const, target: `../layer${same}/layer.tar` }
    }),
    { path: 'manifest.json', content: json([{ Config: name, RepoTags: ['a:b'], Layers: paths }]) },
  ])
}

export function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`
}

function json(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value))
}
