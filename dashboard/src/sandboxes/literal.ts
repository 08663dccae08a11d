/** A value of JSON as a line of JavaScript: `{ name: 'web', ttlSeconds: 600 }`. Fields that are undefined are left out. */
export function literalOf(value: unknown): string {
  if (typeof value === 'string')
    return `'${JSON.stringify(value).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`
  if (Array.isArray(value)) return `[${value.map(literalOf).join(', ')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'undefined'
  const fields = Object.entries(value).flatMap(([name, field]) =>
    field === undefined ? [] : [`${/^[A-Za-z_$][\w$]*$/.test(name) ? name : literalOf(name)}: ${literalOf(field)}`],
  )
  return fields.length === 0 ? '{}' : `{ ${fields.join(', ')} }`
}
