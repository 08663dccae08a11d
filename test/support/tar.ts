import { tarEnd, type TarHeader, tarHeader, tarPadding } from '../../src/protocol/tar-writer.ts'

/** An entry of an archive. The name is bytes in latin1. */
export function tarEntry(name: string, content: string | Uint8Array = '', more: Partial<TarHeader> = {}): Buffer {
  const size = Buffer.byteLength(content)
  const header = tarHeader({ type: 'file', name, mode: 0o644, size, modifiedSeconds: 0, ...more })
  return Buffer.concat([header, Buffer.from(content as Uint8Array), tarPadding(size)])
}

export function tarOf(...entries: Uint8Array[]): Buffer {
  return Buffer.concat([...entries, tarEnd])
}

/** A header with other fields, and the checksum that fits. */
export function tampered(header: Buffer, ...fields: [at: number, value: string | Uint8Array][]): Buffer {
  const copy = Buffer.from(header)
  for (const [at, value] of fields) copy.set(Buffer.from(value as Uint8Array), at)
  copy.write(' '.repeat(8), 148)
  const sum = copy.subarray(0, 512).reduce((total, byte) => total + byte, 0)
  copy.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return copy
}

/** A pax or long-name header with this text. */
export function extraHeader(type: 'x' | 'g' | 'L' | 'K', text: string | Uint8Array): Buffer {
  const size = Buffer.byteLength(text)
  const header = tampered(tarHeader({ type: 'file', name: 'extra', mode: 0o644, size, modifiedSeconds: 0 }), [
    156,
    type,
  ])
  return Buffer.concat([header, Buffer.from(text as Uint8Array), tarPadding(size)])
}

export function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`
  const length = [1, 2, 3, 4, 5, 6, 7]
    .map((digits) => digits + rest.length)
    .find((all, index) => String(all).length === index + 1)
  return `${length}${rest}`
}
