import type { ExpansionBudget } from './budget.ts'
import { quoted, refused } from './fault.ts'
import { parsePattern, replaced, withoutPrefix, withoutSuffix } from './pattern.ts'

/** What the words of an instruction are expanded with. */
export interface Expansion {
  line: number
  escape: string
  valueOf: (name: string) => string | undefined
  budget: ExpansionBudget
}

/** `${a:-${b:-…` is read by recursion. */
const depthMax = 64
/** Letters, digits and `_`; a number; or one of the shell's parameters, which are never set here. */
const namePattern = /[\p{L}_][\p{L}\p{Nd}_]*|\p{Nd}+|[@*#?\-$!]/uy

/** A word without its quotes and escapes, with the values of its variables. */
export function expandWord(word: string, expansion: Expansion): string {
  return new Expander(word, expansion, expansion.escape, true).whole()
}

/** The content of a heredoc: quotes are text in it, and a backslash escapes only `$`, a backslash and the end of a line, as in a shell. */
export function expandHeredoc(content: string, expansion: Expansion): string {
  return new Expander(content, expansion, '\\', false).whole()
}

class Expander {
  #at = 0
  #depth = 0
  /** Cleared in a word that is not used: its variables are read over. */
  #isUsed = true
  readonly #text: string
  readonly #expansion: Expansion
  readonly #escape: string
  readonly #knowsQuotes: boolean

  constructor(text: string, expansion: Expansion, escape: string, knowsQuotes: boolean) {
    this.#text = text
    this.#expansion = expansion
    this.#escape = escape
    this.#knowsQuotes = knowsQuotes
  }

  whole(): string {
    const result = this.#word('', false)
    this.#expansion.budget.takeChars(result.length, this.#expansion.line)
    return result
  }

  /**
   * Up to one of the characters of `stops` outside of quotes and variables, or to the end of the text. With `keepsEscapes`, for patterns, escapes stay in
   * the result.
   */
  #word(stops: string, keepsEscapes: boolean): string {
    const parts: string[] = []
    while (this.#at < this.#text.length) {
      const char = this.#text[this.#at]!
      if (stops.includes(char)) break
      if (char === '$') parts.push(this.#variable())
      else if (char === this.#escape) parts.push(this.#escaped(keepsEscapes))
      else if (char === "'" && this.#knowsQuotes) parts.push(this.#singleQuoted())
      else if (char === '"' && this.#knowsQuotes) parts.push(this.#doubleQuoted(keepsEscapes))
      else parts.push(this.#plain(stops))
    }
    return parts.join('')
  }

  #plain(stops: string): string {
    const start = this.#at
    for (this.#at += 1; this.#at < this.#text.length; this.#at++) {
      const char = this.#text[this.#at]!
      const isQuote = this.#knowsQuotes && (char === "'" || char === '"')
      if (isQuote || char === '$' || char === this.#escape || stops.includes(char)) break
    }
    return this.#text.slice(start, this.#at)
  }

  #escaped(keepsEscapes: boolean): string {
    const char = this.#text[this.#at + 1]
    this.#at += 2
    if (keepsEscapes) return this.#escape + (char ?? '')
    if (char === undefined) return ''
    if (this.#knowsQuotes || this.#depth > 0) return char
    if (char === '\n') return ''
    return '$\\`'.includes(char) ? char : this.#escape + char
  }

  #singleQuoted(): string {
    const end = this.#text.indexOf("'", this.#at + 1)
    if (end < 0) throw this.#refused("a ' has no end")
    const text = this.#text.slice(this.#at + 1, end)
    this.#at = end + 1
    return text
  }

  #doubleQuoted(keepsEscapes: boolean): string {
    const parts: string[] = []
    this.#at += 1
    for (let start = this.#at; ;) {
      const char = this.#text[this.#at]
      if (char === undefined) throw this.#refused('a " has no end')
      const isSpecial = char === '"' || char === '$' || char === this.#escape
      if (!isSpecial) {
        this.#at += 1
        continue
      }
      parts.push(this.#text.slice(start, this.#at))
      if (char === '"') {
        this.#at += 1
        return parts.join('')
      }
      if (char === '$') parts.push(this.#variable())
      else {
        const next = this.#text[this.#at + 1] ?? ''
        const isEscape = next === '"' || next === '$' || next === this.#escape
        parts.push(isEscape ? (keepsEscapes ? char : '') + next : char)
        this.#at += isEscape ? 2 : 1
      }
      start = this.#at
    }
  }

  #variable(): string {
    this.#at += 1
    if (this.#text[this.#at] !== '{') {
      const name = this.#name()
      return name === undefined ? '$' : this.#value(name)
    }
    this.#at += 1
    const name = this.#name()
    if (name === undefined) throw this.#refused('${ is not followed by the name of a variable')
    this.#depth += 1
    if (this.#depth > depthMax) throw this.#refused(`variables are nested more than ${depthMax} deep`)
    const result = this.#modified(name)
    this.#depth -= 1
    if (this.#text[this.#at] !== '}') throw this.#refused(`\${${name} has no }`)
    this.#at += 1
    return result
  }

  /** What follows the name in braces, up to their end. */
  #modified(name: string): string {
    const modifier = this.#text[this.#at]
    if (modifier === '}') return this.#value(name)
    this.#at += 1
    if (modifier === '/') return this.#replaced(name)
    if (modifier === '#' || modifier === '%') return this.#trimmed(name, modifier)
    const isEmptyUnset = modifier === ':'
    const kind = isEmptyUnset ? this.#text[this.#at++] : modifier
    const value = this.#isUsed ? this.#expansion.valueOf(name) : ''
    const isSet = value !== undefined && !(isEmptyUnset && value === '')
    switch (kind) {
      case '-':
        return isSet ? this.#unused(() => this.#value(name)) : this.#nested()
      case '+':
        return isSet ? this.#nested() : this.#unused(() => '')
      case '?': {
        if (isSet || !this.#isUsed) return this.#unused(() => this.#value(name))
        const why = this.#nested() || (value === undefined ? 'is not set' : 'is empty')
        throw this.#refused(`${name}: ${why.slice(0, 200)}`)
      }
      case undefined:
      default: {
        const shown = `${isEmptyUnset ? ':' : ''}${kind ?? ''}`
        throw this.#refused(shown === '' ? `\${${name} has no }` : `\${${name}${shown}…} is no form of a variable`)
      }
    }
  }

  #trimmed(name: string, modifier: '#' | '%'): string {
    const isLongest = this.#text[this.#at] === modifier
    if (isLongest) this.#at += 1
    const pattern = this.#nested(true)
    if (!this.#isUsed) return ''
    const trim = modifier === '#' ? withoutPrefix : withoutSuffix
    return trim(this.#value(name), parsePattern(pattern), isLongest, this.#charge)
  }

  #replaced(name: string): string {
    const isAll = this.#text[this.#at] === '/'
    if (isAll) this.#at += 1
    const pattern = this.#nested(true, '/}')
    if (this.#text[this.#at] !== '/') throw this.#refused(`\${${name}/…} takes a pattern, a / and what replaces it`)
    this.#at += 1
    const replacement = this.#nested(true)
    if (!this.#isUsed || this.#expansion.valueOf(name) === undefined) return ''
    const pieces = replaced(this.#value(name), parsePattern(pattern), replacement, isAll, this.#charge)
    this.#expansion.budget.takeChars((pieces.length / 2) * replacement.length, this.#expansion.line)
    return pieces.join('')
  }

  #nested(keepsEscapes = false, stops = '}'): string {
    const word = this.#word(stops, keepsEscapes)
    this.#expansion.budget.takeChars(word.length, this.#expansion.line)
    return word
  }

  /** Reads over the word that follows, and gives something else. */
  #unused(result: () => string): string {
    const { budget, line } = this.#expansion
    const wasUsed = this.#isUsed
    this.#isUsed = false
    budget.takeChars(this.#word('}', false).length, line)
    this.#isUsed = wasUsed
    return result()
  }

  #name(): string | undefined {
    namePattern.lastIndex = this.#at
    const [name] = namePattern.exec(this.#text) ?? []
    if (name !== undefined) this.#at += name.length
    return name
  }

  #value(name: string): string {
    if (!this.#isUsed) return ''
    const value = this.#expansion.valueOf(name) ?? ''
    this.#expansion.budget.takeChars(value.length, this.#expansion.line)
    return value
  }

  readonly #charge = (comparisons: number): void => {
    this.#expansion.budget.takeComparisons(comparisons, this.#expansion.line)
  }

  #refused(why: string): Error {
    return refused(this.#expansion.line, `${why}, in ${quoted(this.#text)}`)
  }
}
