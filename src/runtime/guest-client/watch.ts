import { z } from 'zod'
import { TimeSlice } from '../../lib/async/time-slice.ts'
import { defined } from '../../lib/defined.ts'
import { changeSchema, frameKind, okSchema, watchEndSchema } from '../../protocol/guest.ts'
import type { FileChange, WatchOptions } from '../../sandbox/ports/guest.ts'
import { check, type GuestConnection, guestYield, nonsense, parseAnswer, parseValue } from './connection.ts'
import type { Reopen, Timeouts } from './connection.ts'
import { pathField } from './port-values.ts'

const listSchema = z.array(z.unknown()).min(1)
const frameBounds = { valuesMax: 32_768, depthMax: 8, fieldsMax: 64 }

/**
 * Watches a folder; the result owns the connection until its end, and gives it up when the signal aborts. A checkpoint closes the
 * connection: what changed until the next one is lost, which is told. A hibernation ends the watch.
 */
export async function watchFolder(
  reopen: Reopen,
  path: string,
  { recursive = false, user, signal }: WatchOptions,
  timeouts: Timeouts,
): Promise<AsyncIterable<FileChange[]>> {
  const request = { op: 'watch', ...pathField('path', path), recursive, ...defined({ user }) }
  let connection: GuestConnection | undefined
  const open = async () => {
    connection = await reopen(async (opened) => {
      await opened.ask(request, okSchema, { timeoutMs: timeouts.answerMs, signal })
      return opened
    })
    const opened = connection
    opened.onFreeze(() => opened.close())
    return opened
  }
  const close = () => connection?.close()
  const first = await open()
  signal?.addEventListener('abort', close, { once: true })
  if (signal?.aborted) close()

  async function* changes(): AsyncGenerator<FileChange[]> {
    let current = first
    try {
      for (;;) {
        try {
          const batch = await nextBatch(current, signal)
          yield batch
          if (batch.at(-1)?.type === 'ended') return
        } catch (error) {
          if (current.frozen === undefined || signal?.aborted) throw error
          if (current.frozen === 'hibernate') return yield [{ type: 'ended', reason: 'hibernated' }]
          current = await open()
          yield [{ type: 'lost' }]
        }
      }
    } finally {
      signal?.removeEventListener('abort', close)
      close()
    }
  }
  return changes()
}

/** A frame has at most 256 KiB of changes; the next one is read when these are taken. */
async function nextBatch(connection: GuestConnection, signal: AbortSignal | undefined): Promise<FileChange[]> {
  const { kind, payload } = await connection.readFrame({ signal })
  if (kind === frameKind.result) {
    const { ended } = await parseAnswer(payload, watchEndSchema)
    return [{ type: 'ended', reason: ended }]
  }
  if (kind !== frameKind.entries) throw nonsense('a frame of another operation')
  await guestYield.next()
  const slice = new TimeSlice()
  const batch: FileChange[] = []
  for (const item of await parseValue(payload, listSchema, frameBounds)) {
    await slice.next()
    batch.push(check(item, changeSchema))
  }
  return batch
}
