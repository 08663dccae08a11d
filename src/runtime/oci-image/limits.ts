import { ServiceError } from '../../errors.ts'
import type { WorkLimits } from '../cgroups/work-groups.ts'

/** Bounds of one import. */
export interface ImageLimits {
  /** Bytes of an archive, or of the compressed layers from a registry. */
  downloadBytesMax: number
  /** Bytes of all layers, uncompressed. */
  bytesMax: number
  /** Entries of all layers. Each takes an inode number, see `InodeTemplates`. */
  filesMax: number
  /** Names in a path. */
  depthMax: number
  layersMax: number
  /** Bytes of a manifest or a configuration. */
  manifestBytesMax: number
  /** Timeout of an answer about a manifest. */
  answerMs: number
  /** An archive or a download is given up after this time with less than `bytesPerSecondMin`. */
  stallMs: number
  bytesPerSecondMin: number
  /** Timeout of a download, and of the unpacking of a layer. */
  stepMs: number
  /** What the programs that fetch and unpack one image may use. */
  work: WorkLimits
  /** Imports that unpack at a time. Others wait. */
  importsAtOnce: number
}

const gibibyte = 1024 ** 3

export const defaultImageLimits: ImageLimits = {
  downloadBytesMax: 8 * gibibyte,
  bytesMax: 16 * gibibyte,
  filesMax: 500_000,
  depthMax: 100,
  layersMax: 127,
  manifestBytesMax: 4 * 1024 ** 2,
  answerMs: 30_000,
  stallMs: 60_000,
  bytesPerSecondMin: 32 * 1024,
  stepMs: 30 * 60_000,
  work: { memoryBytes: gibibyte, processors: 1, processes: 256 },
  importsAtOnce: 2,
}

/** How many bytes must come in `stallMs`. */
export function leastBytes({ stallMs, bytesPerSecondMin }: ImageLimits): number {
  return (stallMs / 1000) * bytesPerSecondMin
}

/** `field` names the input that is at fault: `image.oci` or `archive`. */
export type ImageField = 'image.oci' | 'archive'

export function refuseImage(field: ImageField, message: string, cause?: unknown): ServiceError {
  return new ServiceError('invalid_request', `${field} ${message}`, { cause, details: { field } })
}

export function imageTooLarge(field: ImageField, message: string, cause?: unknown): ServiceError {
  return new ServiceError('too_large', `${field} ${message}`, { cause, details: { field } })
}
