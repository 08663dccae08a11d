import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { sha256 } from '../../lib/secret.ts'
import { copiedPattern } from '../../runtime/index.ts'
import { copiedSchema } from './wire.ts'

/** Raised by each change that an older or a newer program would misread; 1 was never released. */
export const formatNumber = 2
export const manifestFile = 'manifest.json'

/** Name of a folder in the image folder. */
export const imageNamePattern = /^[a-z0-9][a-z0-9._-]{0,63}$/

/** Names of parts: a folder at most, then what cannot lead elsewhere. */
export const partPattern = /^(?:(?:streams|images)\/)?[a-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*$/

const partSchema = z.object({
  file: z.string().regex(partPattern),
  bytes: z.number().int().min(0),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
})
export type Part = z.infer<typeof partSchema>

const streamSchema = partSchema.extend({
  /** The stream on which it builds. */
  parent: z.string().optional(),
  /** Number of streams below this one. */
  depth: z.number().int().min(0),
  /** Bytes that streams of this subvolume have added to the one of `wholeBytes`; decides when the next one is whole. */
  chainBytes: z.number().int().min(0),
  wholeBytes: z.number().int().min(0),
})
export type Stream = z.infer<typeof streamSchema>

const subvolumeSchema = copiedSchema.extend({ isReadOnly: z.boolean(), limitBytes: z.number().optional() })

const manifestSchema = z.object({
  format: z.literal(formatNumber),
  /** Version of the server that was backed up. */
  atoll: z.string(),
  installation: z.string(),
  host: z.string(),
  createdAt: z.iso.datetime(),
  /** Archive of the small files of the data directory. */
  files: partSchema,
  /** Record files, as one JSON text. */
  records: partSchema,
  database: partSchema.extend({ major: z.number().int() }),
  /** Archives of folders of the image folder, by name. */
  images: z.record(z.string().regex(imageNamePattern), partSchema),
  streams: z.record(z.string(), streamSchema),
  /** By their paths in the pool. */
  subvolumes: z.record(z.string().regex(copiedPattern), subvolumeSchema),
  /** Paths of subvolumes that could not be read, each with the reason. */
  unreadable: z.record(z.string(), z.string()),
})
export type Manifest = z.infer<typeof manifestSchema>

const signedSchema = z.object({ sha256: z.string(), manifest: z.unknown() })

export function manifestText(manifest: Manifest): string {
  return `${JSON.stringify({ sha256: sha256(JSON.stringify(manifest)), manifest })}\n`
}

/** Throws `conflict`, with `where` in its message, for a text that is no manifest, is damaged, or has another format. */
export function readManifest(text: string, where: string): Manifest {
  const refuse = (why: string) => new ServiceError('conflict', `${where} ${why}`)
  let given: unknown
  try {
    given = JSON.parse(text)
  } catch {
    throw refuse('is damaged: its manifest cannot be read')
  }
  const { data: signed } = signedSchema.safeParse(given)
  if (signed === undefined) throw refuse('is damaged: its manifest cannot be read')
  const { manifest } = signed
  if (sha256(JSON.stringify(manifest)) !== signed.sha256) throw refuse('is damaged: its manifest has been changed')
  const { format } = (manifest ?? {}) as { format?: unknown }
  if (typeof format === 'number' && format !== formatNumber) {
    const whose = format > formatNumber ? 'a newer version of Atoll' : 'a version of Atoll before 0.1.0'
    throw refuse(`is of ${whose} (format ${format}, this one reads ${formatNumber}): use that version`)
  }
  const { data, error } = manifestSchema.safeParse(manifest)
  if (data === undefined) {
    const [issue] = error.issues
    throw refuse(`is damaged: its manifest is wrong at ${issue?.path.join('.')}: ${issue?.message}`)
  }
  return data
}

/** All parts of a backup. */
export function partsOf({ files, records, database, images, streams }: Manifest): Part[] {
  return [files, records, database, ...Object.values(images), ...Object.values(streams)]
}
