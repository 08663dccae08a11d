import type { Readable } from 'node:stream'
import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { frameKind, readSchema } from '../../protocol/guest.ts'
import type { FileStat, ReadFileOptions } from '../../sandbox/ports/guest.ts'
import { asleep, type GuestConnection, nonsense, parseAnswer, type Reopen, type Timeouts } from './connection.ts'
import { streamOf } from './frame-stream.ts'
import { fileStat, pathField } from './port-values.ts'

/**
 * Opens a file; the stream then owns its connection. A checkpoint closes the connection at once. The next read opens another and goes
 * on with the first unread byte, if the file is unchanged.
 */
export async function openFile(
  reopen: Reopen,
  path: string,
  { user, ...range }: ReadFileOptions,
  timeouts: Timeouts,
): Promise<{ stat: FileStat; body: Readable }> {
  const ask = (start: number | undefined, end: number | undefined) =>
    reopen(async (connection) => {
      const request = { op: 'read', ...pathField('path', path), start, end, user }
      return { connection, answer: await connection.ask(request, readSchema, { timeoutMs: timeouts.answerMs }) }
    })
  const first = await ask(range.start, range.end)
  const { stat, length, version } = first.answer
  const end = Math.min(range.start ?? 0, stat.size) + length - 1
  let left = length
  let connection = first.connection
  const use = (next: GuestConnection): void => {
    connection = next
    next.onFreeze(() => next.close())
  }
  use(connection)

  const resume = async (): Promise<void> => {
    const { answer, connection: next } = await ask(end + 1 - left, end)
    if (body.destroyed) {
      next.close()
      return
    }
    const { stat: current } = answer
    const isSame =
      current.size === stat.size && current.modifiedSeconds === stat.modifiedSeconds && answer.version === version
    if (!isSame || answer.length !== left) {
      next.close()
      throw new ServiceError('conflict', `${path}: changed while it was read`)
    }
    use(next)
  }

  const pull = async (): Promise<Buffer | null> => {
    for (;;) {
      try {
        const frame = await connection.readFrame({ timeoutMs: timeouts.idleMs })
        if (frame.kind === frameKind.result) await parseAnswer(frame.payload, z.never())
        if (frame.kind === frameKind.end && left === 0) return null
        left -= frame.payload.length
        if (frame.kind !== frameKind.data || frame.payload.length === 0 || left < 0) {
          throw nonsense('a file of another length than announced')
        }
        return frame.payload
      } catch (error) {
        if (!connection.closed || connection.frozen === undefined) throw error
        if (connection.frozen === 'hibernate') throw asleep()
        if (left === 0) return null
        await resume()
        if (body.destroyed) return null
      }
    }
  }
  const body = streamOf(pull, () => connection.close())
  return { stat: fileStat(stat), body }
}
