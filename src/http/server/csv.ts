/** CSV as RFC 4180 says, with the columns of the first item. A text that a spreadsheet would take for a formula gets an apostrophe. */
export function csvOf(items: readonly object[]): string {
  const [first = {}] = items
  const columns = Object.keys(first)
  const lines = items.map((item) => columns.map((column) => cell((item as Record<string, unknown>)[column])).join(','))
  return `${[columns.join(','), ...lines].join('\r\n')}\r\n`
}

function cell(value: unknown): string {
  if (value === undefined || value === null) return ''
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
