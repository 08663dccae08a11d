export interface StorableBounds {
  depthMax: number
  /** Of arrays, objects and what is in them, all together. */
  valuesMax: number
}

/**
 * A copy that PostgreSQL takes and a browser reads: no NUL, no lone surrogate, no `__proto__` key. Throws a `RangeError` for
 * arrays and objects nested too deep, and for too many values.
 */
export function storable(whole: unknown, { depthMax, valuesMax }: StorableBounds): unknown {
  let valuesLeft = valuesMax
  return copyOf(whole, depthMax)

  function copyOf(value: unknown, depthLeft: number): unknown {
    if (valuesLeft-- === 0) throw new RangeError(`more than ${valuesMax} values`)
    if (typeof value === 'string') return storableText(value)
    if (typeof value !== 'object' || value === null) return value
    if (depthLeft === 0) throw new RangeError(`nested deeper than ${depthMax}`)
    if (Array.isArray(value)) return value.map((item) => copyOf(item, depthLeft - 1))
    const copy: Record<string, unknown> = {}
    for (const [key, item] of Object.entries(value)) {
      if (key !== '__proto__') copy[storableText(key)] = copyOf(item, depthLeft - 1)
    }
    return copy
  }
}

function storableText(text: string): string {
  return text.toWellFormed().replaceAll('\0', '\u{fffd}')
}
