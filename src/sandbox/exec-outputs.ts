import { isServiceError } from '../errors.ts'
import { SharedRoom } from '../lib/shared-room.ts'
import type { ProcessOutput } from './guest.ts'

/** Outputs up to this size wait in no line: a connection's own buffers take them, however slowly its client reads. */
const smallBytesMax = 64 * 1024
/**
 * What one organisation, and all together, may be reading from sandboxes at a time, and as many large outputs may be unsent. An output
 * has at most 8 MiB of each stream.
 */
const places = { ofOneMax: 4, ofAllMax: 16 }

/**
 * Bounds the outputs in memory, from the guest's answer until they were sent on. Clients that read slowly hold up large outputs
 * alone, and first those of their own organisation.
 */
export class ExecOutputs {
  readonly #reads = new SharedRoom(places)
  readonly #unsent = new SharedRoom(places)

  /** Reads an output; a large one is among those in memory until `sent` settles. */
  async take(orgId: string, read: Read, sent?: Promise<unknown>): Promise<ProcessOutput> {
    const leaveRead = await this.#reads.enter(orgId)
    try {
      if (sent === undefined) return await read()
      const leave = this.#unsent.tryEnter(orgId)
      if (leave !== undefined) return await readInto(leave, read, sent)
      // What waits in line must take no memory, and be there when its turn comes: the guest forgets what was sent.
      const output = await readSmall(read)
      if (output !== undefined) return output
    } finally {
      leaveRead()
    }
    return await readInto(await this.#unsent.enter(orgId), read, sent)
  }
}

/** See `Guest.output`. */
type Read = (bytesMax?: number) => Promise<ProcessOutput>

async function readInto(leave: () => void, read: Read, sent: Promise<unknown>): Promise<ProcessOutput> {
  try {
    const output = await read()
    if (isSmall(output)) leave()
    else void sent.then(leave, leave)
    return output
  } catch (error) {
    leave()
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
