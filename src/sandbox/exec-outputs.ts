import { isServiceError } from '../errors.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { ProcessOutput } from './ports/guest.ts'

/** Outputs up to this size wait in no line: a connection's own buffers take them, however slowly its client reads. */
const smallBytesMax = 64 * 1024
/**
 * What one organisation, and all together, may be reading from sandboxes at a time, and as many large outputs may be unsent. An output
 * has at most 8 MiB of each stream.
 */
const outputsMax = { permitsPerKey: 4, permits: 16 }

/**
 * Bounds the outputs in memory, from the guest's answer until they were sent on. Clients that read slowly hold up large outputs
 * alone, and first those of their own organisation.
 */
export class ExecOutputs {
  readonly #reads = new Semaphore(outputsMax)
  readonly #unsent = new Semaphore(outputsMax)

  /** Reads an output; a large one is among those in memory until `sent` settles. */
  async take(orgId: string, read: Read, sent?: Promise<unknown>): Promise<ProcessOutput> {
    const releaseRead = await this.#reads.acquire({ key: orgId })
    try {
      if (sent === undefined) return await read()
      const release = this.#unsent.tryAcquire({ key: orgId })
      if (release !== undefined) return await readInto(release, read, sent)
      // What waits in line must take no memory, and be there when its turn comes: the guest forgets what was sent.
      const output = await readSmall(read)
      if (output !== undefined) return output
    } finally {
      releaseRead()
    }
    return await readInto(await this.#unsent.acquire({ key: orgId }), read, sent)
  }
}

/** See `Guest.output`. */
type Read = (bytesMax?: number) => Promise<ProcessOutput>

async function readInto(release: () => void, read: Read, sent: Promise<unknown>): Promise<ProcessOutput> {
  try {
    const output = await read()
    if (isSmall(output)) release()
    else void sent.then(release, release)
    return output
  } catch (error) {
    release()
    throw error
  }
}

/** Undefined for one that is not small. */
async function readSmall(read: Read): Promise<ProcessOutput | undefined> {
  try {
    const output = await read(smallBytesMax)
    return isSmall(output) ? output : undefined
  } catch (error) {
    if (isServiceError(error, 'too_large')) return undefined
    throw error
  }
}

function isSmall({ stdout, stderr }: ProcessOutput): boolean {
  return stdout.length + stderr.length <= smallBytesMax
}
