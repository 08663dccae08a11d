import type { ComparedFile } from 'atoll-sdk'
import { unquoted } from './quoted-path.ts'

/** One file of a patch of git. */
export interface PatchFile extends ComparedFile {
  /** Git's, such as `100755`, where the patch says them: both where they differ. */
  oldMode?: string
  newMode?: string
  /** Where it stands in the patch, in bytes. */
  start: number
  end: number
}

/** A patch whose text stays outside of the page's memory, and where each of its files stands. */
export interface PatchIndex {
  files: readonly PatchFile[]
  bytes: Blob
  /** The server has ended it early, since it is too long. */
  isCut: boolean
}

/** More of a patch is not read. The server makes none that is longer, but for its last line. */
const patchBytesMax = 65 * 1024 * 1024
/** Of a line. Names of git have 3500 bytes, which are four times as long when they are quoted, and stand twice in one line. */
const linePrefixBytesMax = 32 * 1024
/** What has come is handed to the browser in parts of this size. */
const foldedBytes = 8 * 1024 * 1024
const newline = 10
const [plus, minus, backslash] = [43, 45, 92]

/** Reads a patch to its end and finds its files. Throws what the stream throws, and the reason of the signal. */
export async function indexPatch(
  patch: string | ReadableStream<Uint8Array>,
  signal?: AbortSignal,
): Promise<PatchIndex> {
  const scanner = new PatchScanner()
  let bytes = new Blob()
  let parts: Uint8Array<ArrayBuffer>[] = []
  let partBytes = 0
  const fold = () => {
    bytes = new Blob([bytes, ...parts])
    parts = []
    partBytes = 0
  }
  const stream = typeof patch === 'string' ? new Blob([patch]).stream() : patch
  const reader = stream.getReader()
  try {
    while (bytes.size + partBytes < patchBytesMax) {
      signal?.throwIfAborted()
      const { done, value } = await reader.read()
      if (done) break
      const part = value as Uint8Array<ArrayBuffer>
      scanner.take(part)
      parts.push(part)
      partBytes += part.length
      if (partBytes >= foldedBytes) fold()
    }
  } finally {
    await reader.cancel().catch(() => undefined)
  }
  fold()
  return { files: scanner.end(), bytes, isCut: scanner.isCut }
}

/**
 * Finds the files of a patch as it comes. Between heads of files stand hunks, whose heads say how many lines they have, so that no line of a
 * file is taken for a head.
 */
class PatchScanner {
  isCut = false
  readonly #files: PatchFile[] = []
  readonly #decoder = new TextDecoder()
  #file: PatchFile | undefined
  /** Lines of the hunk that are still to come. */
  #old = 0
  #new = 0
  /** The beginning of the line at hand. */
  #prefix = new Uint8Array(0)
  #lineStart = 0
  #offset = 0

  take(part: Uint8Array): void {
    let from = 0
    for (let end = part.indexOf(newline); end !== -1; end = part.indexOf(newline, from)) {
      this.#line(this.#prefix.length === 0 ? part.subarray(from, end) : this.#prefixWith(part.subarray(from, end)))
      this.#prefix = new Uint8Array(0)
      from = end + 1
      this.#lineStart = this.#offset + from
    }
    if (from < part.length) this.#prefix = this.#prefixWith(part.subarray(from))
    this.#offset += part.length
  }

  end(): PatchFile[] {
    if (this.#prefix.length > 0) this.#line(this.#prefix)
    this.#lineStart = this.#offset
    this.#close()
    return this.#files
  }

  #prefixWith(more: Uint8Array): Uint8Array<ArrayBuffer> {
    const added = more.subarray(0, Math.max(0, linePrefixBytesMax - this.#prefix.length))
    const joined = new Uint8Array(this.#prefix.length + added.length)
    joined.set(this.#prefix)
    joined.set(added, this.#prefix.length)
    return joined
  }

  #line(bytes: Uint8Array): void {
    const [first] = bytes
    if (first === backslash) {
      this.isCut ||= this.#text(bytes).startsWith('\\ The patch ends here')
      return
    }
    if (this.#file === undefined || (this.#old === 0 && this.#new === 0)) return this.#head(this.#text(bytes))
    if (first !== plus) this.#old -= 1
    if (first !== minus) this.#new -= 1
    if (first === plus) this.#file.addedLines += 1
    if (first === minus) this.#file.removedLines += 1
  }

  #text(bytes: Uint8Array): string {
    return this.#decoder.decode(bytes.subarray(0, linePrefixBytesMax))
  }

  #head(line: string): void {
    if (line.startsWith('diff --git ')) {
      this.#close()
      const path = nameInFirstLine(line.slice('diff --git '.length))
      const counts = { addedLines: 0, removedLines: 0 }
      this.#file = { path, change: 'modified', isBinary: false, ...counts, start: this.#lineStart, end: 0 }
      return
    }
    const file = this.#file
    if (file === undefined) return
    const [, old, now] = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(line) ?? []
    if (line.startsWith('@@ ')) {
      this.#old = Number(old ?? 1)
      this.#new = Number(now ?? 1)
    } else describe(file, line)
  }

  #close(): void {
    if (this.#file !== undefined) this.#files.push({ ...this.#file, end: this.#lineStart })
    this.#file = undefined
    this.#old = 0
    this.#new = 0
  }
}

/** Without another line that names them both names are the same: `a/x b/x`. */
function nameInFirstLine(names: string): string {
  if (names.startsWith('"')) return unquoted(names).replace(/^a\//, '')
  const length = (names.length - 'a/ b/'.length) / 2
  return names.slice('a/'.length, 'a/'.length + length)
}

function describe(file: PatchFile, line: string): void {
  const after = (prefix: string) => (line.startsWith(prefix) ? line.slice(prefix.length) : undefined)
  const newMode = after('new mode ') ?? after('new file mode ')
  const oldMode = after('old mode ') ?? after('deleted file mode ')
  if (newMode !== undefined) file.newMode = newMode
  if (oldMode !== undefined) file.oldMode = oldMode
  if (line.startsWith('new file mode ')) file.change = 'added'
  if (line.startsWith('deleted file mode ')) file.change = 'deleted'
  const from = after('rename from ')
  const to = after('rename to ')
  if (from !== undefined) file.oldPath = unquoted(from)
  if (to !== undefined) {
    file.path = unquoted(to)
    file.change = 'renamed'
  }
  if (line.startsWith('Binary files ') || line === 'GIT binary patch') file.isBinary = true
}
