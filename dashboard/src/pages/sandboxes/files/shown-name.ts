/** A part of a name as it is shown: as it is, or in place of characters that cannot be seen or change how others are. */
export interface NamePart {
  text: string
  isEscape: boolean
}

// Controls, marks of direction, joiners and others without a form, blanks that look like the usual one, halves of pairs.
const unseen = /(?! )[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{DI}\p{Z}\u2800]|^ | $/gu
const short: Record<string, string> = { '\n': '\\n', '\r': '\\r', '\t': '\\t', ' ': '␣' }

/** The parts of a name on one line. */
export function namePartsOf(name: string): NamePart[] {
  const parts: NamePart[] = []
  let from = 0
  for (const { 0: found, index } of name.matchAll(unseen)) {
    if (index > from) parts.push({ text: name.slice(from, index), isEscape: false })
    parts.push({ text: escaped(found), isEscape: true })
    from = index + found.length
  }
  if (from < name.length) parts.push({ text: name.slice(from), isEscape: false })
  return parts
}

/** The same as one text, for labels. */
export function shownName(name: string): string {
  return namePartsOf(name)
    .map(({ text }) => text)
    .join('')
}

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0
  return short[character] ?? (code > 0xff ? `\\u{${code.toString(16)}}` : `\\x${code.toString(16).padStart(2, '0')}`)
}
