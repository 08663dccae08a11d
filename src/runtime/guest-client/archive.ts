/** Trees of files as streams of a tar, out of a sandbox and into it. */
import { Readable } from 'node:stream'
import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { frameKind, okSchema, payloadBytesMax, unpackedSchema } from '../../protocol/guest.ts'
import type { PackEntry, PackOptions, Unpacked, UnpackOptions } from '../../sandbox/ports/guest.ts'
import { asleep, type GuestConnection, nonsense, parseAnswer, type Reopen, type Timeouts } from './connection.ts'
import { streamOf } from './frame-stream.ts'
import { pathField } from './port-values.ts'
import { sendBody, UploadSource } from './upload.ts'

/** A list of entries goes out in frames of about this size: one entry, whose names are bounded, never fills the rest of a frame. */
const entriesBytes = payloadBytesMax / 2

/** Packs entries. The stream owns its connection, and a checkpoint ends it. */
export async function packTree(
  reopen: Reopen,
  entries: readonly PackEntry[],
  { skip = [], followsFirst = false, bytesMax, signal }: PackOptions,
  timeouts: Timeouts,
): Promise<Readable> {
  signal?.throwIfAborted()
  const items = [
    ...entries.map(({ path, name, shallow = false }) => {
      return { ...pathField('path', path), ...pathField('name', name), shallow }
    }),
    ...skip.map((path) => pathField('skip', path)),
  ]
  const connection = await reopen(async (opened) => {
    const request = { op: 'pack', followsFirst, ...defined({ bytesMax }) }
    await opened.ask(request, okSchema, { timeoutMs: timeouts.answerMs, signal })
    for (const list of listsOf(items))
      await opened.send(frameKind.entries, list, { timeoutMs: timeouts.idleMs, signal })
    await opened.send(frameKind.end, Buffer.alloc(0), { timeoutMs: timeouts.idleMs, signal })
    return opened
  })
  connection.onFreeze(() => connection.close())

  const pull = async (): Promise<Buffer | null> => {
    try {
      const frame = await connection.readFrame({ timeoutMs: timeouts.idleMs })
      if (frame.kind === frameKind.result) await parseAnswer(frame.payload, z.never())
      if (frame.kind === frameKind.end) return null
      if (frame.kind !== frameKind.data || frame.payload.length === 0) throw nonsense('no part of an archive')
      return frame.payload
    } catch (error) {
      throw cutOff(connection) ?? error
    }
  }
  return streamOf(pull, () => connection.close(), signal)
}

/** Unpacks a tar, which is destroyed at the end, as by a loop over it. */
export async function unpackTree(
  reopen: Reopen,
  tar: AsyncIterable<Uint8Array>,
  { target, asArchive = false, signal, ...options }: UnpackOptions,
  timeouts: Timeouts,
): Promise<Unpacked> {
  const body = tar instanceof Readable ? tar : Readable.from(tar)
  const source = new UploadSource(body)
  const abort = (): void => void body.destroy(signal?.reason instanceof Error ? signal.reason : undefined)
  try {
    signal?.throwIfAborted()
    const request = { op: 'unpack', ...pathField('path', target), asArchive, ...options }
    const connection = await reopen(async (opened) => {
      await opened.ask(request, okSchema, { timeoutMs: timeouts.answerMs, signal })
      return opened
    })
    signal?.addEventListener('abort', abort, { once: true })
    const { answer, finish } = await sendBody(connection, source, timeouts, unpackedSchema)
    if (finish !== 'end') throw nonsense('a result before the end of the archive')
    const { files, bytes, devices, attributes, hidden } = answer
    return { files, bytes, devices, attributes, hidden }
  } finally {
    signal?.removeEventListener('abort', abort)
    source.release()
    body.on('error', () => undefined).destroy()
  }
}

/** The error of a connection that a checkpoint has closed. */
function cutOff(connection: GuestConnection): ServiceError | undefined {
  if (connection.frozen === undefined) return undefined
  return connection.frozen === 'hibernate'
    ? asleep()
    : new ServiceError('unavailable', 'a checkpoint of the sandbox came first')
}

function* listsOf(items: readonly object[]): Generator<Buffer> {
  let list: string[] = []
  let bytes = 0
  for (const item of items) {
    const text = JSON.stringify(item)
    if (bytes > 0 && bytes + text.length > entriesBytes) {
      yield Buffer.from(`[${list.join(',')}]`)
      list = []
      bytes = 0
    }
    list.push(text)
    bytes += Buffer.byteLength(text) + 1
  }
  if (list.length > 0) yield Buffer.from(`[${list.join(',')}]`)
}
