import type { Atoll, Call, RequestOptions } from './atoll.ts'
import { TooLargeError } from './errors.ts'

/** Two disks of the tree of a sandbox. */
export interface CompareOptions extends RequestOptions {
  /** A checkpoint: its id, its name where it is of the sandbox, or `SANDBOX/NAME`. */
  from: string | { id: string }
  /** Likewise. Default: the disk that the sandbox has now. */
  to?: string | { id: string } | undefined
  /** Absolute path inside. Default `/workspace`. */
  folder?: string | undefined
}

export interface PatchTextOptions extends CompareOptions {
  /** A longer patch is refused. Default 8 MiB. */
  bytesMax?: number | undefined
}

const patchBytesMaxDefault = 8 * 1024 * 1024

/** Path and parameters of a comparison. */
export type Comparison = readonly [path: string, call: Call]

export function comparisonOf(sandboxPath: string, { from, to, folder, ...request }: CompareOptions): Comparison {
  const named = (disk: string | { id: string } | undefined) => (typeof disk === 'object' ? disk.id : disk)
  return [`${sandboxPath}/diff`, { query: { from: named(from), to: named(to), folder }, ...request }]
}

export async function openPatch(client: Atoll, [path, call]: Comparison): Promise<ReadableStream<Uint8Array>> {
  const { body } = await client.open('GET', path, { ...call, headers: { Accept: 'text/x-diff' } })
  return body ?? new ReadableStream({ start: (controller) => controller.close() })
}

/** Throws `TooLargeError` past `bytesMax`, and reads no further. */
export async function readPatch(
  client: Atoll,
  comparison: Comparison,
  bytesMax = patchBytesMaxDefault,
): Promise<string> {
  const reader = (await openPatch(client, comparison)).getReader()
  const decoder = new TextDecoder()
  let [text, bytes] = ['', 0]
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return text + decoder.decode()
      bytes += value.length
      if (bytes > bytesMax) throw new TooLargeError(`the patch has more than ${bytesMax} bytes (bytesMax)`)
      text += decoder.decode(value, { stream: true })
    }
  } finally {
    await reader.cancel().catch(() => undefined)
  }
}
