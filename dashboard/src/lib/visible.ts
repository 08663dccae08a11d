/**
 * Characters that a reader does not see, or that move others: controls (a tab too), separators of lines, marks and overrides of direction (UAX #9),
 * characters without width, fillers, and halves of surrogate pairs.
 */
const unseen = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u{115f}\u{1160}\u{3164}\u{ffa0}]/gu

const short: Record<string, string> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/** The text on one line, with what is unseen in it written as escapes: `a\nb`, `\u202e`. */
export function visible(text: string): string {
  return text.replace(unseen, escaped)
}

/** The same of a line of a file, whose tabs stay. */
export function visibleLine(line: string): string {
  return line.replace(unseen, (found) => (found === '\t' ? found : escaped(found)))
}

function escaped(found: string): string {
  const code = (found.codePointAt(0) ?? 0).toString(16)
  return short[found] ?? (code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, '0')}`)
}
