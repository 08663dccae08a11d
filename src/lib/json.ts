/** Whether a value from outside is an object with fields: no array, and not null. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Bytes of JSON's grammar (RFC 8259). */
export const quote = 0x22
export const backslash = 0x5c
export const comma = 0x2c
export const colon = 0x3a
export const openList = 0x5b
export const closeList = 0x5d
export const openObject = 0x7b
export const closeObject = 0x7d

export function isBlank(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09
}
