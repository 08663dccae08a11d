import { ServiceError } from '../../errors.ts'

/** Bounds of one import. */
export interface ImageLimits {
  /** Of an archive, and of the compressed layers from a registry. */
  downloadBytesMax: number
  /** Of all layers, uncompressed. */
  bytesMax: number
  /** Entries of all layers. Each takes an inode number, see `InodeTemplates`. */
  filesMax: number
  /** Names in a path. */
  depthMax: number
  layersMax: number
  /** Of a manifest or a configuration. */
  manifestBytesMax: number
  /** For an answer about a manifest. */
  answerMs: number
  /** A download that does not grow for so long is given up. */
  stallMs: number
  /** For a download, and for a layer to be unpacked. */
  stepMs: number
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
  stepMs: 30 * 60_000,
  importsAtOnce: 2,
}

/** `field` names the input that is at fault: `image.oci` or `archive`. */
export type ImageField = 'image.oci' | 'archive'

export function refuseImage(field: ImageField, message: string, cause?: unknown): ServiceError {
  return new ServiceError('invalid_request', `${field} ${message}`, { cause, details: { field } })
}

export function imageTooLarge(field: ImageField, message: string, cause?: unknown): ServiceError {
  return new ServiceError('too_large', `${field} ${message}`, { cause, details: { field } })
}
