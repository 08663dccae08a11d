import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { OutOfMemory } from '../cgroups/work-groups.ts'
import { CommandError, reportable } from '../command.ts'
import { poolIsFull } from '../disk/index.ts'
import { HostdError, type HostTool } from '../hostd/index.ts'
import { imageTooLarge, refuseImage, type ImageField, type ImageLimits } from './limits.ts'

const reportedChars = 300

const outcome = z.object({
  /** SHA-256 of the uncompressed tar in hex. */
  digest: z.string(),
  bytes: z.number(),
  files: z.number(),
  isOpaque: z.boolean(),
})
export type Unpacked = z.output<typeof outcome>

export interface UnpackRequest {
  /** A tar, also compressed by gzip or zstd. */
  blob: string
  /** Where the files go; absent: the tar is only hashed. */
  target?: string
  /** Unpacked layers below, newest first. */
  lowers?: readonly string[]
  /** The tar is no layer: nothing is hashed, no name is a whiteout, and root owns all files. */
  plain?: boolean
  bytesMax: number
  filesMax?: number
}
export type Unpack = (request: UnpackRequest) => Promise<Unpacked>

/**
 * Returns a function that unpacks tars of unknown origin (`unpack-layer` of hostd). It throws `invalid_request` with what is wrong with
 * the tar, `too_large`, and `no_capacity`.
 */
export function unpackerOf(
  hostd: Pick<HostTool, 'runTool'>,
  {
    field,
    limits,
    hostFolder,
    signal,
  }: { field: ImageField; limits: ImageLimits; hostFolder: string; signal: AbortSignal },
): Unpack {
  return async ({ blob, target, lowers = [], plain = false, bytesMax, filesMax = limits.filesMax }) => {
    const bounds = { bytesMax, filesMax, depthMax: limits.depthMax }
    const request = { op: 'unpack-layer', blob, ...bounds, target, lowers, plain } as const
    try {
      return outcome.parse(JSON.parse(await hostd.runTool(request, { timeoutMs: limits.stepMs, signal })))
    } catch (error) {
      if (error instanceof OutOfMemory) throw imageTooLarge(field, `cannot be unpacked: ${error.message}`, error)
      if (!(error instanceof CommandError)) throw error
      throw reasonOf(error, field, plain ? 'is refused' : 'has a layer that is refused', hostFolder)
    }
  }
}

function reasonOf(error: CommandError, field: ImageField, isRefused: string, hostFolder: string): ServiceError {
  const said = reportable(error.stderr, [hostFolder], reportedChars)
  const code = error instanceof HostdError ? error.code : undefined
  if (code === 'no_space') return poolIsFull(error)
  if (error.outcome === 'took too long') return imageTooLarge(field, 'takes too long to unpack', error)
  if (code === 'too_large') return imageTooLarge(field, `${isRefused}: ${said}`, error)
  if (code !== 'failed') {
    return new ServiceError('unavailable', `a layer cannot be unpacked: ${said || error.outcome}`, { cause: error })
  }
  return refuseImage(field, `${isRefused}: ${said}`, error)
}
