import { frameKind, okSchema, outputEndSchema } from '../../protocol/guest.ts'
import type { ProcessOutput } from '../../sandbox/ports/guest.ts'
import { type GuestConnection, nonsense, parseValue, type Timeouts } from './connection.ts'
import { collecting } from './listings.ts'

/** The most that a guest retains of a stream, with what it reads beyond that at the end of a process. */
const outputBytesMax = 18 * 1024 * 1024

export async function readOutput(
  connection: GuestConnection,
  processId: string,
  timeouts: Timeouts,
  bytesMax?: number,
): Promise<ProcessOutput> {
  const request = { op: 'output', id: processId, bytesMax }
  await connection.ask(request, okSchema, { timeoutMs: timeouts.answerMs })
  return readOutputFrames(connection, timeouts)
}

/** Asks the guest to release a process whose output was read; false when that may have failed. */
export async function acknowledge(connection: GuestConnection, timeouts: Timeouts): Promise<boolean> {
  const wait = { timeoutMs: timeouts.answerMs }
  try {
    await connection.send(frameKind.acknowledge, Buffer.alloc(0), wait)
    // The guest closes after the release.
    await connection.readFrame(wait)
    return false
  } catch {
    return connection.frozen === undefined
  }
}

export async function readOutputFrames(
  connection: GuestConnection,
  timeouts: Timeouts,
  bytesMax = Infinity,
): Promise<ProcessOutput> {
  const [stdout, stderr] = [new Gathered(), new Gathered()]
  const wait = collecting(timeouts)
  for (;;) {
    const { kind, payload } = await connection.readFrame(wait())
    if (kind === frameKind.end) {
      const { truncated } = await parseValue(payload, outputEndSchema)
      return { stdout: stdout.bytes, stderr: stderr.bytes, truncated }
    }
    if (kind !== frameKind.stdout && kind !== frameKind.stderr) throw nonsense('a frame of another operation')
    // Eight bytes of offset come first; a frame without data is a violation.
    if (payload.length <= 8) throw nonsense('output of an impossible size')
    const stream = kind === frameKind.stdout ? stdout : stderr
    stream.append(payload.subarray(8))
    if (stdout.length + stderr.length > bytesMax) throw nonsense('more output than was asked for')
  }
}

/** One buffer for output that arrives in pieces: many tiny ones would cost far more than their bytes. */
class Gathered {
  #space = Buffer.alloc(0)
  #length = 0

  get length(): number {
    return this.#length
  }

  get bytes(): Buffer {
    return this.#space.subarray(0, this.#length)
  }

  append(part: Buffer): void {
    const length = this.#length + part.length
    if (length > outputBytesMax) throw nonsense('output of an impossible size')
    if (length > this.#space.length) {
      const larger = Buffer.allocUnsafe(Math.min(Math.max(length, 2 * this.#space.length), outputBytesMax))
      this.#space.copy(larger, 0, 0, this.#length)
      this.#space = larger
    }
    part.copy(this.#space, this.#length)
    this.#length = length
  }
}
