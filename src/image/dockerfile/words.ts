const blankPattern = /\s/
/** What separates the words of an instruction that knows no quotes. */
const separatorPattern = /[\t\v\f\r ]+/

export function splitAtBlanks(text: string): string[] {
  return text.split(separatorPattern).filter((word) => word !== '')
}

/**
 * Words between blanks, as they are written: quotes and escapes stay, and blanks inside of them do not separate. A quote without an end goes to the
 * end of the text, and an escape there stands for nothing.
 */
export function splitWords(text: string, escape: string): string[] {
  const words: string[] = []
  let parts: string[] = []
  let from = 0
  let isWord = false
  let quote = ''
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!
    if (char === escape && quote !== "'") {
      if (at + 1 === text.length) {
        parts.push(text.slice(from, at))
        from = text.length
      } else {
        at += 1
        isWord = true
      }
    } else if (quote !== '') {
      if (char === quote) quote = ''
    } else if (char === '"' || char === "'") {
      quote = char
      isWord = true
    } else if (blankPattern.test(char)) {
      if (isWord) words.push([...parts, text.slice(from, at)].join(''))
      parts = []
      from = at + 1
      isWord = false
    } else isWord = true
  }
  const last = [...parts, text.slice(from)].join('')
  return isWord && last !== '' ? [...words, last] : words
}

/**
 * The flags in front of the arguments of an instruction: words that begin with `--`, without their quotes and escapes. A `--` alone ends them.
 * `rest` is what follows.
 */
export function splitFlags(text: string): { flags: string[]; rest: string } {
  const flags: string[] = []
  let at = 0
  for (;;) {
    while (at < text.length && blankPattern.test(text[at]!)) at += 1
    if (!text.startsWith('--', at)) return { flags, rest: text.slice(at) }
    const parts: string[] = []
    let quote = ''
    for (; at < text.length; at++) {
      const char = text[at]!
      if (char === '\\') {
        at += 1
        if (at < text.length) parts.push(text[at]!)
      } else if (quote !== '' && char === quote) quote = ''
      else if (quote === '' && (char === '"' || char === "'")) quote = char
      else if (quote === '' && blankPattern.test(char)) break
      else parts.push(char)
    }
    const flag = parts.join('')
    if (flag === '--') return { flags, rest: text.slice(at).trimStart() }
    flags.push(flag)
  }
}

/** The words of a JSON list. `undefined` for anything that is no JSON list, `null` for a list with something else than text in it. */
export function jsonWords(text: string): string[] | undefined | null {
  if (!text.startsWith('[')) return undefined
  try {
    const value: unknown = JSON.parse(text)
    if (!Array.isArray(value)) return undefined
    return value.every((word) => typeof word === 'string') ? value : null
  } catch {
    return undefined
  }
}
