import { ServiceError } from '../../errors.ts'

const gibibyte = 1024 ** 3

/** Bounds of one import. */
export const defaultImageLimits = {
  /** Bytes of an archive, or of the compressed layers from a registry. */
  downloadBytesMax: 8 * gibibyte,
  /** Bytes of all layers, uncompressed. */
  bytesMax: 16 * gibibyte,
  /** Entries of all layers. Each takes an inode number, see `InodeTemplates`. */
  filesMax: 500_000,
  /** Names in a path. */
  depthMax: 100,
  /** As Docker and podman have it at least. The driver takes more, for the steps of builds on the image. */
  layersMax: 128,
  /** Bytes of a manifest or a configuration. */
  manifestBytesMax: 4 * 1024 ** 2,
  /** Timeout of an answer about a manifest. */
  answerMs: 30_000,
  /** An archive or a download is given up after this time with less than `bytesPerSecondMin`. */
  stallMs: 60_000,
  bytesPerSecondMin: 32 * 1024,
  /** Timeout of a download, and of the unpacking of a layer. */
  stepMs: 30 * 60_000,
  /** What the programs that fetch and unpack one image may use. */
  work: { memoryBytes: gibibyte, processors: 1, processes: 256 },
  /** Imports that unpack at a time. Others wait. */
  importsAtOnce: 2,
}

export type ImageLimits = typeof defaultImageLimits

/** How many bytes must come in `stallMs`. */
export function leastBytes({ stallMs, bytesPerSecondMin }: ImageLimits): number {
  return (stallMs / 1000) * bytesPerSecondMin
}

/** The input that is at fault: `reference` is where an image is to go. */
export type ImageField = 'image.oci' | 'archive' | 'reference'

export function refuseImage(field: ImageField, message: string, cause?: unknown): ServiceError {
  return new ServiceError('invalid_request', `${field} ${message}`, { cause, details: { field } })
}

export function imageTooLarge(field: ImageField, message: string, cause?: unknown): ServiceError {
  return new ServiceError('too_large', `${field} ${message}`, { cause, details: { field } })
}
