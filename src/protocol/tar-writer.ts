const blockBytes = 512
/** Eleven octal digits. */
const octalMax = 8 ** 11 - 1

/** Names are bytes in latin1. */
export interface TarHeader {
  type: 'file' | 'directory' | 'symlink'
  name: string
  mode: number
  /** Of a file; behind the header come so many bytes, and the padding. */
  size?: number
  /** Of a link. */
  target?: string
  modifiedSeconds: number
}

const typeFlags = { file: '0', directory: '5', symlink: '2' } as const

/** The header of an entry that belongs to root, in ustar; what does not fit there stands in a pax header before it. */
export function tarHeader({ type, name, mode, size = 0, target = '', modifiedSeconds }: TarHeader): Buffer {
  const shownName = type === 'directory' ? `${name}/` : name
  const records = [
    ...(isPlain(shownName) ? [] : [recordOf('path', shownName)]),
    ...(isPlain(target) ? [] : [recordOf('linkpath', target)]),
    ...(size > octalMax ? [recordOf('size', String(size))] : []),
  ]
  const seconds = Math.min(Math.max(Math.floor(modifiedSeconds) || 0, 0), octalMax)
  const header = blockOf(typeFlags[type], { name: shownName, mode, size, target, seconds })
  if (records.length === 0) return header
  const text = Buffer.from(records.join(''), 'latin1')
  const pax = blockOf('x', { name: 'pax', mode: 0o644, size: text.length, target: '', seconds })
  return Buffer.concat([pax, text, tarPadding(text.length), header])
}

/** A file with its content. */
export function tarFile(facts: Omit<TarHeader, 'type' | 'size' | 'target'>, content: Buffer): Buffer[] {
  const { length: size } = content
  return [tarHeader({ ...facts, type: 'file', size }), content, tarPadding(size)]
}

/** What stands behind a content of this size. */
export function tarPadding(size: number): Buffer {
  return Buffer.alloc((blockBytes - (size % blockBytes)) % blockBytes)
}

/** The end of an archive. */
export const tarEnd: Buffer = Buffer.alloc(2 * blockBytes)

/** Changes the time in a header. */
export function setTarTime(header: Buffer, modifiedSeconds: number): void {
  putOctal(header, modifiedSeconds, 136, 11)
  putSum(header)
}

/** Parts of an archive, small ones together: a stream costs more for each than a copy. */
export async function* inPieces(
  parts: AsyncIterable<Uint8Array | readonly Uint8Array[]>,
  pieceBytes: number,
): AsyncGenerator<Uint8Array> {
  let waiting: Uint8Array[] = []
  let bytes = 0
  for await (const some of parts) {
    for (const part of some instanceof Uint8Array ? [some] : some) {
      waiting.push(part)
      bytes += part.length
    }
    if (bytes < pieceBytes) continue
    yield waiting.length === 1 ? waiting[0]! : Buffer.concat(waiting)
    waiting = []
    bytes = 0
  }
  if (bytes > 0) yield Buffer.concat(waiting)
}

/** Whether readers of each format find the whole name in its field. */
function isPlain(text: string): boolean {
  return text.length <= 100 && /^[\x20-\x7e]*$/.test(text)
}

/** The length counts its own digits. */
function recordOf(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`
  let length = rest.length + 1
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length
  return `${length}${rest}`
}

interface Fields {
  name: string
  mode: number
  size: number
  target: string
  seconds: number
}

function blockOf(typeFlag: string, { name, mode, size, target, seconds }: Fields): Buffer {
  const block = Buffer.alloc(blockBytes)
  block.write(name.slice(0, 100), 0, 'latin1')
  putOctal(block, mode & 0o7777, 100, 7)
  putOctal(block, 0, 108, 7)
  putOctal(block, 0, 116, 7)
  putOctal(block, size > octalMax ? 0 : size, 124, 11)
  putOctal(block, seconds, 136, 11)
  block.write(typeFlag, 156, 'latin1')
  block.write(target.slice(0, 100), 157, 'latin1')
  block.write('ustar\x0000', 257, 'latin1')
  putSum(block)
  return block
}

function putOctal(block: Buffer, value: number, at: number, digits: number): void {
  block.write(`${value.toString(8).padStart(digits, '0')}\0`, at, 'latin1')
}

/** The sum of all bytes, the field itself counted as blanks. */
function putSum(block: Buffer): void {
  block.fill(' ', 148, 156)
  const sum = block.reduce((total, byte) => total + byte, 0)
  putOctal(block, sum, 148, 6)
}
