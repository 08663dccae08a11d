import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { OutOfMemory } from '../cgroups/work-groups.ts'
import { CommandError, reportable } from '../command.ts'
import { poolIsFull } from '../disk/index.ts'
import type { HostTool } from '../hostd/index.ts'
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
  /** Absent: it is hashed only. */
  target?: string
  /** Unpacked layers below, newest first. */
  lowers?: readonly string[]
  /** No layer: nothing is hashed, no name is a whiteout, and root owns all. */
  plain?: boolean
  bytesMax: number
  filesMax?: number
}
export type Unpack = (request: UnpackRequest) => Promise<Unpacked>

/**
 * Unpacks tars of unknown origin (`atoll-hostd unpack-layer`). Throws `invalid_request` with what is wrong with one, `too_large`,
 * and `no_capacity`.
 */
export function unpackerOf(
  hostd: HostTool,
  {
    field,
    limits,
    hostFolder,
    signal,
  }: { field: ImageField; limits: ImageLimits; hostFolder: string; signal: AbortSignal },
): Unpack {
  return async ({ blob, target, lowers = [], plain = false, bytesMax, filesMax = limits.filesMax }) => {
    const bounds = [
      '--bytes-max',
      String(bytesMax),
      '--files-max',
      String(filesMax),
      '--depth-max',
      String(limits.depthMax),
    ]
    const folders = target === undefined ? [] : ['--target', target, ...lowers.flatMap((lower) => ['--lower', lower])]
    const argv = ['unpack-layer', '--blob', blob, ...bounds, ...folders, ...(plain ? ['--plain', 'yes'] : [])] as const
    try {
      return outcome.parse(JSON.parse(await hostd.runTool(argv, { timeoutMs: limits.stepMs, signal })))
    } catch (error) {
      if (error instanceof OutOfMemory) throw imageTooLarge(field, `cannot be unpacked: ${error.message}`, error)
      if (!(error instanceof CommandError)) throw error
      throw reasonOf(error, field, plain ? 'is refused' : 'has a layer that is refused', hostFolder)
    }
  }
}

function reasonOf(error: CommandError, field: ImageField, isRefused: string, hostFolder: string): ServiceError {
  const said = reportable(error.stderr.replace(/^atoll-hostd: /, ''), [hostFolder], reportedChars)
  if (/No space left|quota exceeded/i.test(said)) return poolIsFull(error)
  if (error.outcome === 'took too long') return imageTooLarge(field, 'takes too long to unpack', error)
  if (/more than \d+/.test(said)) return imageTooLarge(field, `${isRefused}: ${said}`, error)
  if (error.exitCode === undefined || /is not installed|there is no command/.test(said)) {
    return new ServiceError('unavailable', `a layer cannot be unpacked: ${said || error.outcome}`, { cause: error })
  }
  return refuseImage(field, `${isRefused}: ${said}`, error)
}
