import { createHash } from 'node:crypto'
import { Sealer } from '../lib/sealed.ts'

const keyBytes = 32
const idLength = 8

export interface SealingKey {
  /** The first eight hex digits of its SHA-256: what a sealed text begins with. */
  id: string
  hex: string
  sealer: Sealer
}

/** The keys of a list, each 32 bytes in hex or base64 (also base64url). Undefined when one of them is none. */
export function readKeys(texts: readonly string[]): SealingKey[] | undefined {
  const keys = texts.map((text) => readKey(text.trim()))
  return keys.every((key) => key !== undefined) ? keys : undefined
}

function readKey(text: string): SealingKey | undefined {
  const isHex = /^[0-9a-fA-F]{64}$/.test(text)
  if (!isHex && !/^[A-Za-z0-9+/_-]{43}=?$/.test(text)) return undefined
  const bytes = Buffer.from(text, isHex ? 'hex' : 'base64')
  if (bytes.length !== keyBytes) return undefined
  const hex = bytes.toString('hex')
  return { id: createHash('sha256').update(bytes).digest('hex').slice(0, idLength), hex, sealer: new Sealer(hex) }
}
