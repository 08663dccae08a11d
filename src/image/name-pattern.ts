type Token = '*' | ((letter: string) => boolean)

/** Go's `filepath.Match` for one name, as `COPY` has it. Linear in pattern times name, whatever the pattern. */
export class NamePattern {
  /** What it stands for when it stands for one name alone. */
  readonly literal: string | undefined
  readonly #tokens: readonly Token[]

  static of(text: string): NamePattern | undefined {
    const tokens: Token[] = []
    let literal = ''
    let isLiteral = true
    const letters = Array.from(text)
    for (let at = 0; at < letters.length;) {
      const letter = letters[at++]!
      if (letter === '*') {
        isLiteral = false
        if (tokens.at(-1) !== '*') tokens.push('*')
      } else if (letter === '?') {
        isLiteral = false
        tokens.push(() => true)
      } else if (letter === '[') {
        isLiteral = false
        const found = classAt(letters, at)
        if (found === undefined) return undefined
        tokens.push(found.matches)
        at = found.end
      } else {
        const meant = letter === '\\' ? letters[at++] : letter
        if (meant === undefined) return undefined
        literal += meant
        tokens.push((other) => other === meant)
      }
    }
    return new NamePattern(tokens, isLiteral ? literal : undefined)
  }

  private constructor(tokens: readonly Token[], literal: string | undefined) {
    this.#tokens = tokens
    this.literal = literal
  }

  matches(name: string): boolean {
    const letters = Array.from(name)
    const tokens = this.#tokens
    let at = 0
    let token = 0
    /** The last star, and where what follows it is tried. */
    let star = -1
    let tried = 0
    while (at < letters.length) {
      const wanted = tokens[token]
      if (wanted === '*') {
        star = token++
        tried = at
      } else if (wanted?.(letters[at]!)) {
        token += 1
        at += 1
      } else if (star >= 0) {
        token = star + 1
        at = ++tried
      } else return false
    }
    while (tokens[token] === '*') token += 1
    return token === tokens.length
  }
}

/** The class behind a `[`: letters, ranges and `\` before a letter, `^` in front for all others. */
function classAt(
  letters: readonly string[],
  start: number,
): { matches: (letter: string) => boolean; end: number } | undefined {
  let at = start
  const isNegated = letters[at] === '^'
  if (isNegated) at += 1
  const ranges: [number, number][] = []
  const letter = (): number | undefined => {
    if (letters[at] === '-' || letters[at] === ']') return undefined
    if (letters[at] === '\\') at += 1
    return letters[at++]?.codePointAt(0)
  }
  do {
    const low = letter()
    if (low === undefined) return undefined
    let high: number | undefined = low
    if (letters[at] === '-') {
      at += 1
      high = letter()
    }
    if (high === undefined) return undefined
    ranges.push([low, high])
  } while (letters[at] !== ']')
  const matches = (other: string) => {
    const code = other.codePointAt(0)!
    return ranges.some(([low, high]) => low <= code && code <= high) !== isNegated
  }
  return { matches, end: at + 1 }
}
