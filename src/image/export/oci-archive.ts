import { createHash } from 'node:crypto'
import { defined } from '../../lib/defined.ts'
import { tarEnd, tarFile, tarHeader, tarPadding } from '../../protocol/tar-writer.ts'
import type { Checkpoint, Healthcheck } from '../../sandbox/index.ts'
import type { Image } from '../image.ts'

/** An archive of the OCI image layout. */
export interface OciArchive {
  /** Of its manifest. */
  digest: string
  bytes: number
  content: () => AsyncIterable<Buffer>
}

/** A layer, packed by gzip. */
interface PackedLayer {
  digest: string
  size: number
  content: () => AsyncIterable<Buffer>
}

const media = (type: string) => `application/vnd.oci.image.${type}`

/** The configuration of an image of one layer, by the OCI image specification and with Docker's HEALTHCHECK and SHELL. */
export function configurationOf(
  { contentHash, config = {}, oci }: Image,
  { createdAt, sandboxConfig }: Pick<Checkpoint, 'createdAt' | 'sandboxConfig'>,
  { architecture, diffId }: { architecture: string; diffId: string },
): object {
  const { entrypoint = oci?.entrypoint, cmd = oci?.cmd } = config
  const { labels, exposedPorts, volumes, stopSignal, healthcheck, shell } = config
  const { cwd, user } = sandboxConfig.commandDefaults ?? {}
  const created = createdAt.toISOString()
  return {
    created,
    architecture,
    os: 'linux',
    config: defined({
      Env: Object.entries(sandboxConfig.envs).map(([name, value]) => `${name}=${value}`),
      WorkingDir: cwd,
      User: user,
      Entrypoint: nonEmpty(entrypoint),
      Cmd: nonEmpty(cmd),
      Labels: labels,
      ExposedPorts: setOf(exposedPorts),
      Volumes: setOf(volumes),
      StopSignal: stopSignal,
      Healthcheck: healthcheck && healthcheckOf(healthcheck),
      Shell: nonEmpty(shell),
    }),
    rootfs: { type: 'layers', diff_ids: [diffId] },
    history: [{ created, created_by: `atoll image ${contentHash}` }],
  }
}

export function archiveOf({ name = '' }: Pick<Image, 'name'>, config: object, layer: PackedLayer): OciArchive {
  const configBlob = blobOf('config.v1+json', config)
  const { digest, size } = layer
  const manifest = blobOf('manifest.v1+json', {
    schemaVersion: 2,
    mediaType: media('manifest.v1+json'),
    config: configBlob.descriptor,
    layers: [{ mediaType: media('layer.v1.tar+gzip'), digest, size }],
  })
  const { architecture, os, created } = config as { architecture: string; os: string; created: string }
  const tag = name.split(':')[1] ?? 'latest'
  const index = blobOf('index.v1+json', {
    schemaVersion: 2,
    mediaType: media('index.v1+json'),
    manifests: [
      {
        ...manifest.descriptor,
        platform: { architecture, os },
        annotations: { 'org.opencontainers.image.ref.name': tag },
      },
    ],
  })
  const modifiedSeconds = Math.floor(Date.parse(created) / 1000)
  const folder = (path: string) => [tarHeader({ type: 'directory', name: path, mode: 0o755, modifiedSeconds })]
  const factsOf = (path: string) => ({ name: path, mode: 0o644, modifiedSeconds })
  const file = (path: string, bytes: Buffer) => tarFile(factsOf(path), bytes)
  const pathOf = (of: string) => `blobs/sha256/${of.slice('sha256:'.length)}`
  const before = [
    ...file('oci-layout', Buffer.from('{"imageLayoutVersion":"1.0.0"}')),
    ...file('index.json', index.bytes),
    ...folder('blobs'),
    ...folder('blobs/sha256'),
    ...file(pathOf(configBlob.descriptor.digest), configBlob.bytes),
    ...file(pathOf(manifest.descriptor.digest), manifest.bytes),
    tarHeader({ ...factsOf(pathOf(digest)), type: 'file', size }),
  ]
  const after = [tarPadding(size), tarEnd]
  return {
    digest: manifest.descriptor.digest,
    bytes: [...before, ...after].reduce((sum, { length }) => sum + length, size),
    async *content() {
      yield* before
      yield* layer.content()
      yield* after
    },
  }
}

function blobOf(type: string, value: object) {
  const bytes = Buffer.from(JSON.stringify(value))
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
  return { bytes, descriptor: { mediaType: media(type), digest, size: bytes.length } }
}

function nonEmpty(words: readonly string[] | undefined): readonly string[] | undefined {
  return words?.length === 0 ? undefined : words
}

/** As the specification writes a set. */
function setOf(words: readonly string[] | undefined): Record<string, object> | undefined {
  return words && Object.fromEntries(words.map((word) => [word, {}]))
}

/** Durations in nanoseconds. */
function healthcheckOf({ test, intervalMs, timeoutMs, startPeriodMs, startIntervalMs, retries }: Healthcheck): object {
  const nanoseconds = (ms: number | undefined) => (ms === undefined ? undefined : ms * 1_000_000)
  return defined({
    Test: test,
    Interval: nanoseconds(intervalMs),
    Timeout: nanoseconds(timeoutMs),
    StartPeriod: nanoseconds(startPeriodMs),
    StartInterval: nanoseconds(startIntervalMs),
    Retries: retries,
  })
}
