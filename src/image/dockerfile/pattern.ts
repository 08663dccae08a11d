/**
 * Patterns of `${name#pattern}` and its like: `*` is any number of characters, `?` one, and a backslash takes the meaning from the next character.
 * A pattern is split at its `*`; each part is found at its first place behind the one before, so that nothing is tried twice.
 */
export interface Pattern {
  /** Between the `*`. */
  parts: readonly Part[]
}

/** Characters, with `undefined` for `?`. */
type Part = readonly (string | undefined)[]

/** Called with the number of comparisons before they are made. Throws when there were too many. */
export type Charge = (comparisons: number) => void

export function parsePattern(text: string): Pattern {
  const parts: (string | undefined)[][] = [[]]
  const chars = Array.from(text)
  for (let at = 0; at < chars.length; at++) {
    const char = chars[at]!
    if (char === '*') parts.push([])
    else if (char === '\\') parts.at(-1)!.push(chars[++at] ?? '\\')
    else parts.at(-1)!.push(char === '?' ? undefined : char)
  }
  return { parts }
}

/** `value` without the shortest or the longest beginning that matches. */
export function withoutPrefix(value: string, pattern: Pattern, longest: boolean, charge: Charge): string {
  charge(value.length)
  const chars = Array.from(value)
  const end = endOfMatch(chars, 0, pattern, longest, charge)
  return typeof end === 'number' ? chars.slice(end).join('') : value
}

/** `value` without the shortest or the longest end that matches. */
export function withoutSuffix(value: string, pattern: Pattern, longest: boolean, charge: Charge): string {
  charge(value.length)
  const chars = Array.from(value).reverse()
  const reversed = { parts: pattern.parts.map((part) => part.toReversed()).reverse() }
  const end = endOfMatch(chars, 0, reversed, longest, charge)
  return typeof end === 'number' ? chars.slice(end).reverse().join('') : value
}

/** The pieces of `value` with its first longest match replaced, or all of them. A match of nothing is none, but `*` matches a value of nothing. */
export function replaced(
  value: string,
  pattern: Pattern,
  replacement: string,
  isAll: boolean,
  charge: Charge,
): string[] {
  charge(value.length)
  const chars = Array.from(value)
  if (chars.length === 0 && pattern.parts.length > 1 && endOfMatch(chars, 0, pattern, true, charge) === 0)
    return [replacement]
  const pieces: string[] = []
  let kept = 0
  for (let at = 0; at < chars.length;) {
    const end = endOfMatch(chars, at, pattern, true, charge)
    if (end === 'never') break
    if (end === undefined || end === at) {
      at += 1
      continue
    }
    pieces.push(chars.slice(kept, at).join(''), replacement)
    kept = at = end
    if (!isAll) break
  }
  return [...pieces, chars.slice(kept).join('')]
}

/** Where the match that begins at `start` ends; undefined without one, `never` when none begins later either. */
function endOfMatch(
  chars: readonly string[],
  start: number,
  { parts }: Pattern,
  longest: boolean,
  charge: Charge,
): number | undefined | 'never' {
  const [first = [], ...others] = parts
  if (!isAt(chars, start, first, charge)) return undefined
  let at = start + first.length
  const last = others.pop()
  if (last === undefined) return at
  for (const part of others) {
    const found = firstPlace(chars, at, part, charge)
    // What does not follow here does not follow further to the right.
    if (found === undefined) return 'never'
    at = found + part.length
  }
  const found = longest ? lastPlace(chars, at, last, charge) : firstPlace(chars, at, last, charge)
  return found === undefined ? 'never' : found + last.length
}

function firstPlace(chars: readonly string[], from: number, part: Part, charge: Charge): number | undefined {
  for (let at = from; at + part.length <= chars.length; at++) if (isAt(chars, at, part, charge)) return at
  return undefined
}

function lastPlace(chars: readonly string[], from: number, part: Part, charge: Charge): number | undefined {
  for (let at = chars.length - part.length; at >= from; at--) if (isAt(chars, at, part, charge)) return at
  return undefined
}

function isAt(chars: readonly string[], at: number, part: Part, charge: Charge): boolean {
  if (at + part.length > chars.length) return false
  const mismatch = part.findIndex((char, index) => char !== undefined && char !== chars[at + index])
  charge(1 + (mismatch < 0 ? part.length : mismatch))
  return mismatch < 0
}
