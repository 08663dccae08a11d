/** What is no archive, or not a whole one. */
export class TarError extends Error {}

const blockBytes = 512
/** Of long names and pax headers, those of one entry together. A path of Linux has at most 4096 bytes. */
const extraBytesMax = 1024 * 1024

/** Names are strings of bytes. */
export interface TarEntry {
  type: 'file' | 'folder' | 'link' | 'hard link' | 'other'
  name: string
  /** Where a link leads. */
  target: string
  size: number
  mode: number
  modifiedSeconds: number
  /** To be read before the next entry; what is not read is skipped. */
  body: AsyncIterable<Uint8Array>
}

const types: Record<string, TarEntry['type']> = {
  '\0': 'file',
  '0': 'file',
  '7': 'file',
  '1': 'hard link',
  '2': 'link',
  '5': 'folder',
}

/**
 * Reads an archive in the formats ustar, pax and GNU (tar(5)). It says what the archive says: names may lead anywhere. Throws for what is
 * no archive or ends early.
 */
export async function* entriesOf(archive: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  const bytes = new ByteReader(archive)
  let extra = new Map<string, string>()
  let extraBytes = 0
  for (;;) {
    const header = await bytes.take(blockBytes)
    // The end is two empty blocks; what follows is padding.
    if (header.every((byte) => byte === 0)) return await bytes.drain()
    if (!hasItsSum(header)) throw new TarError('the archive is damaged')
    const type = header.toString('latin1', 156, 157)
    const isExtra = 'LKxg'.includes(type)
    const size = !isExtra && extra.has('size') ? Number(extra.get('size')) : numberOf(header.subarray(124, 136))
    if (!Number.isSafeInteger(size) || size < 0) throw new TarError('the archive is damaged: a size')
    if (isExtra) {
      extraBytes += size + blockBytes
      if (extraBytes > extraBytesMax) throw new TarError('the archive has a name that is too long')
      const text = (await bytes.take(size)).toString('latin1')
      await bytes.skip(paddingOf(size))
      if (type === 'L') extra.set('path', beforeNul(text))
      if (type === 'K') extra.set('linkpath', beforeNul(text))
      if (type === 'x') for (const [key, value] of recordsOf(text)) extra.set(key, value)
      continue
    }
    const name = extra.get('path') ?? nameOf(header)
    const isSparse = type === 'S' || [...extra.keys()].some((key) => key.startsWith('GNU.sparse.'))
    const isFolder = name.endsWith('/') && types[type] === 'file'
    const hasBody = !['1', '2', '3', '4', '5', '6'].includes(type)
    let left = hasBody ? size : 0
    yield {
      type: isSparse ? 'other' : isFolder ? 'folder' : (types[type] ?? 'other'),
      name,
      target: extra.get('linkpath') ?? textOf(header, 157, 100),
      size: left,
      mode: numberOf(header.subarray(100, 108)) & 0o7777,
      modifiedSeconds: Number(extra.get('mtime') ?? numberOf(header.subarray(136, 148))),
      body: (async function* () {
        while (left > 0) {
          const part = await bytes.some(left)
          left -= part.length
          yield part
        }
      })(),
    }
    await bytes.skip(left + (hasBody ? paddingOf(size) : 0))
    extra = new Map()
    extraBytes = 0
  }
}

function paddingOf(size: number): number {
  return (blockBytes - (size % blockBytes)) % blockBytes
}

/** Whether a file that begins with this is an archive with an entry. */
export function isTarHeader(start: Buffer): boolean {
  return start.length >= blockBytes && hasItsSum(start.subarray(0, blockBytes))
}

function hasItsSum(header: Buffer): boolean {
  let sum = 0
  for (const [index, byte] of header.entries()) sum += index >= 148 && index < 156 ? 0x20 : byte
  return sum === numberOf(header.subarray(148, 156))
}

/** Octal digits, or big-endian bytes behind a set first bit. */
function numberOf(field: Buffer): number {
  const first = field[0] ?? 0
  if ((first & 0x80) === 0) return Number.parseInt(beforeNul(field.toString('latin1')).trim() || '0', 8)
  let value = first === 0xff ? -1 : first & 0x7f
  for (const byte of field.subarray(1)) value = value * 256 + byte
  return value
}

function textOf(header: Buffer, at: number, length: number): string {
  return beforeNul(header.toString('latin1', at, at + length))
}

function beforeNul(text: string): string {
  const [before = ''] = text.split('\0', 1)
  return before
}

/** GNU's format has other fields where that of POSIX has the beginning of a long name. */
function nameOf(header: Buffer): string {
  const prefix = header.toString('latin1', 257, 263) === 'ustar\0' ? textOf(header, 345, 155) : ''
  const name = textOf(header, 0, 100)
  return prefix === '' ? name : `${prefix}/${name}`
}

/** `LENGTH key=value\n`, as often as it comes. */
function recordsOf(text: string): [string, string][] {
  const records: [string, string][] = []
  for (let at = 0; at < text.length;) {
    const length = Number(/^\d{1,8} /.exec(text.slice(at, at + 9))?.[0])
    const record = text.slice(at, at + length)
    const [, key, value] = /^\d+ ([^=]+)=([^]*)\n$/.exec(record) ?? []
    if (key === undefined || value === undefined) throw new TarError('the archive is damaged: a pax header')
    records.push([key, value])
    at += length
  }
  return records
}

class ByteReader {
  readonly #chunks: AsyncIterator<Uint8Array, unknown>
  #rest: Buffer = Buffer.alloc(0)

  constructor(archive: AsyncIterable<Uint8Array>) {
    this.#chunks = archive[Symbol.asyncIterator]()
  }

  /** At least one byte and at most so many. */
  async some(most: number): Promise<Buffer> {
    while (this.#rest.length === 0) {
      const { value, done } = await this.#chunks.next()
      if (done === true) throw new TarError('the archive ended early')
      this.#rest = Buffer.from(value.buffer, value.byteOffset, value.length)
    }
    const part = this.#rest.subarray(0, most)
    this.#rest = this.#rest.subarray(part.length)
    return part
  }

  async take(count: number): Promise<Buffer> {
    const parts: Buffer[] = []
    for (let left = count; left > 0;) {
      const part = await this.some(left)
      parts.push(part)
      left -= part.length
    }
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
  }

  async skip(count: number): Promise<void> {
    for (let left = count; left > 0;) left -= (await this.some(left)).length
  }

  /** To the end of the stream, so that its writer sees no broken pipe. */
  async drain(): Promise<void> {
    while ((await this.#chunks.next()).done !== true);
  }
}
