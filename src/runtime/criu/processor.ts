import { readFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { CommandError, run } from '../command.ts'
import { faultIn } from './reason.ts'

/** Where a dump says what its processor could. There is none in dumps of earlier versions, and on ARM64. */
const processorFile = 'cpuinfo.img'
const fittingMax = 256

/** Contents of such files that fit this machine, whose processor stays the same as long as it runs. */
const fitting = new Set<string>()

/**
 * Whether processes that were saved in a folder of images find the instructions here that they had then. Programs look once for
 * what the processor can, and go on with it. Throws `full_checkpoint_unavailable`.
 */
export async function assertProcessorFits(criu: string, images: string): Promise<void> {
  const wanted = await readFile(`${images}/${processorFile}`, 'base64').catch(() => undefined)
  if (wanted === undefined || fitting.has(wanted)) return
  try {
    await run([criu, 'cpuinfo', 'check', '--images-dir', images, '--work-dir', images, '--cpu-cap=ins'])
  } catch (error) {
    if (!(error instanceof CommandError) || error.exitCode === undefined) throw error
    const { reason } = faultIn(error.stderr, [images])
    const message = `the memory cannot be restored on this machine: ${reason}`
    throw new ServiceError('full_checkpoint_unavailable', message, { cause: error })
  }
  if (fitting.size >= fittingMax) fitting.clear()
  fitting.add(wanted)
}
