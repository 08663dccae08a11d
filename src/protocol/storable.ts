/**
 * A copy that PostgreSQL takes and a browser reads: no NUL, no lone surrogate, no `__proto__` key. Throws a `RangeError` for
 * arrays and objects nested deeper than `depthMax`.
 */
export function storable(value: unknown, depthMax: number): unknown {
  return copyOf(value, depthMax, depthMax)
}

function copyOf(value: unknown, depthMax: number, depthLeft: number): unknown {
  if (typeof value === 'string') return storableText(value)
  if (typeof value !== 'object' || value === null) return value
  if (depthLeft === 0) throw new RangeError(`nested deeper than ${depthMax}`)
  if (Array.isArray(value)) return value.map((item) => copyOf(item, depthMax, depthLeft - 1))
  const copy: Record<string, unknown> = {}
  for (const [key, item] of Object.entries(value)) {
    if (key !== '__proto__') copy[storableText(key)] = copyOf(item, depthMax, depthLeft - 1)
  }
  return copy
}

function storableText(text: string): string {
  return text.toWellFormed().replaceAll('\0', '\u{fffd}')
}
