import type { RequestOptions } from './atoll.ts'
import { Attached, type Taken } from './attached.ts'
import { connect } from './connect.ts'
import { ConnectionError } from './errors.ts'

/** First byte of each message (reference, `GET /api/sandboxes/{id}/exec/{execId}`). */
const frame = { stdin: 0, stdout: 1, stderr: 2, exit: 3, replayed: 4 } as const
/** Larger than the offset of any output. */
const offsetMax = 999_999_999_999_999

/** Slightly less than the sandbox keeps of each stream for later readers. */
const keptBytes = 1024 * 1024 - 64 * 1024

/** A piece of output. */
export interface Output {
  stream: 'stdout' | 'stderr'
  data: Uint8Array
}

/**
 * A command in a sandbox. `exited` is its exit code: 128 and the number of a signal that ended it, 124 when `timeoutSeconds` did
 * (`timedOut` tells that from an exit code of its own).
 *
 * ```js
 * const process = await sandbox.spawn('npm', { args: ['test'] })
 * for await (const { stream, data } of process) …
 * console.log(await process.exited)
 * ```
 */
export class Process extends Attached<Output, number> {
  /** Whether the time limit ended the command. Known after its end. */
  timedOut = false

  /** Writes to standard input. Resolves when the connection can take more. */
  async write(data: string | Uint8Array): Promise<void> {
    const bytes = bytesOf(data)
    // An empty message is the end of input.
    if (bytes.length > 0) await this.send(framed(bytes))
  }

  /** Ends standard input. */
  async end(): Promise<void> {
    await this.send(framed(new Uint8Array()))
  }

  /**
   * Bytes of output that were never read. A command waits for those who read it, so it is 0 unless it had run without one, or its reader read
   * nothing for a minute: then the sandbox keeps the last MiB of each stream. To be asked after the end.
   */
  async lost(): Promise<number> {
    if (this.offset <= keptBytes) return this.dropped
    return this.dropped + Math.max(0, (await this.#written()) - this.offset)
  }

  /** Sends a signal to its process group, SIGKILL by default. */
  async kill(signal = 9, options: RequestOptions = {}): Promise<void> {
    await this.client.json('POST', `${this.path}/kill`, { json: { signal }, repeat: 'always', ...options })
  }

  protected override take(message: Uint8Array): Taken<Output, number> {
    const data = message.subarray(1)
    switch (message[0] as number) {
      case frame.exit:
        this.timedOut = data[4] === 1
        return { exit: new DataView(data.buffer, data.byteOffset, data.length).getInt32(0) }
      case frame.stdout:
        return { item: { stream: 'stdout', data }, bytes: data.length }
      case frame.stderr:
        return { item: { stream: 'stderr', data }, bytes: data.length }
      case frame.replayed:
        return { reached: reachedBy(message) }
      case undefined:
      default:
        return undefined
    }
  }

  /** The end of a command is a message. */
  protected override exitOf(): undefined {
    return undefined
  }

  /** Bytes of output that the command has written, as the sandbox counts them. */
  async #written(): Promise<number> {
    const address = this.client.address(this.path, { offset: offsetMax })
    const messages = await connect(address, this.client.credentials)
    try {
      for await (const message of messages) {
        if (message[0] !== frame.replayed) continue
        return reachedBy(message)
      }
      throw new ConnectionError('the connection ended before its first message')
    } finally {
      messages.close()
    }
  }
}

function reachedBy(replayed: Uint8Array): number {
  return Number(new DataView(replayed.buffer, replayed.byteOffset, replayed.length).getBigUint64(1))
}

function framed(input: Uint8Array): Uint8Array {
  const message = new Uint8Array(input.length + 1)
  message[0] = frame.stdin
  message.set(input, 1)
  return message
}

export function bytesOf(data: string | Uint8Array): Uint8Array {
  return typeof data === 'string' ? new TextEncoder().encode(data) : data
}
