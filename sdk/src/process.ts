import type { RequestOptions } from './atoll.ts'
import { Attached, type Taken } from './attached.ts'

/** First byte of each message (reference, `GET /api/sandboxes/{id}/exec/{execId}`). */
const frame = { stdin: 0, stdout: 1, stderr: 2, exit: 3 } as const

/** A piece of output. */
export interface Output {
  stream: 'stdout' | 'stderr'
  data: Uint8Array
}

/**
 * A command in a sandbox. `exited` is its exit code: 128 and the number of a signal that ended it.
 *
 * ```js
 * const process = await sandbox.spawn('npm', { args: ['test'] })
 * for await (const { stream, data } of process) …
 * console.log(await process.exited)
 * ```
 */
export class Process extends Attached<Output, number> {
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

  /** Sends a signal to its process group, SIGKILL by default. */
  async kill(signal = 9, options: RequestOptions = {}): Promise<void> {
    await this.client.json('POST', `${this.path}/kill`, { json: { signal }, repeat: 'always', ...options })
  }

  protected override take(message: Uint8Array): Taken<Output, number> {
    const data = message.subarray(1)
    switch (message[0]) {
      case frame.exit:
        return { exit: new DataView(data.buffer, data.byteOffset, data.length).getInt32(0) }
      case frame.stdout:
        return { item: { stream: 'stdout', data }, bytes: data.length }
      case frame.stderr:
        return { item: { stream: 'stderr', data }, bytes: data.length }
      case undefined:
      default:
        return undefined
    }
  }

  /** Its end is a message. */
  protected override exitOf(): undefined {
    return undefined
  }
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
