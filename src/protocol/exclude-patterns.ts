import { posix } from 'node:path'

/** What a pattern is made of. A state is an index: what stands there is what the path must go on with. */
type Piece =
  | { is: 'character'; code: number }
  /** `?`: one character that is no slash. */
  | { is: 'any' }
  | { is: 'class'; isNegated: boolean; ranges: readonly (readonly [low: number, high: number])[] }
  /** `*`: any number of characters that are no slash. */
  | { is: 'some' }
  /** `**` before something: nothing, or anything up to a slash, which is what `inside`, its next piece, stands for. */
  | { is: 'folders' }
  | { is: 'inside' }
  /** `**` at the end. */
  | { is: 'rest' }

const slash = 0x2f

/** Where a walk is: what each pattern has come to with the names so far. */
export interface Place {
  /** The last pattern that fits the path or a folder above it is no exception. */
  readonly isExcluded: boolean
  /** By pattern: it fits the path, or a folder above it. */
  readonly fits: readonly boolean[]
  /** By pattern: its states. None: nothing below can fit it. */
  readonly states: readonly (readonly number[])[]
}

/**
 * Patterns of a `.dockerignore` and of `COPY --exclude`, as moby's `patternmatcher` takes them: Go's `filepath.Match` for each name, and `**` for
 * any number of folders. A pattern holds for all below what it fits, also when that is a file; of the patterns that fit, the last one decides, so
 * that `!` brings back a file of an excluded folder. Paths are relative, with `/`, their bytes in latin1.
 *
 * A match takes time proportional to the lengths of the path and of the patterns, whatever they hold: both may be hostile, and a regular expression
 * would need exponential time for some.
 */
export class ExcludePatterns {
  readonly #rules: readonly Rule[]
  readonly root: Place

  /** Throws `SyntaxError` for a pattern that has no meaning. */
  constructor(patterns: readonly string[]) {
    this.#rules = patterns.flatMap((pattern) => ruleOf(pattern) ?? [])
    this.root = {
      isExcluded: false,
      fits: this.#rules.map(() => false),
      states: this.#rules.map(({ start }) => start),
    }
  }

  excludes(path: string): boolean {
    return path.split('/').reduce((place, name) => this.enter(place, name), this.root).isExcluded
  }

  /** The place of an entry of a folder. */
  enter(folder: Place, name: string): Place {
    const text = (folder === this.root ? '' : '/') + textOf(name)
    const fits: boolean[] = []
    const states: (readonly number[])[] = []
    let isExcluded = false
    for (const [index, rule] of this.#rules.entries()) {
      const before = folder.states[index] ?? []
      const isFixed = folder.fits[index] ?? false
      const after = isFixed ? [] : rule.after(before, text)
      states.push(after)
      fits.push(isFixed || rule.isEnd(after))
      if (fits[index]) isExcluded = !rule.isException
    }
    return { isExcluded, fits, states }
  }

  /** Whether something below an excluded folder may stay. */
  mayKeepBelow(folder: Place): boolean {
    return this.#rules.some((rule, index) => rule.isException && rule.after(folder.states[index] ?? [], '/').length > 0)
  }
}

/** The patterns of a `.dockerignore`: its lines without blank ones and comments. */
export function patternsIn(text: string): string[] {
  const lines = text.replace(/^\ufeff/, '').split(/\r?\n/)
  return lines.filter((line) => !line.startsWith('#') && line.trim() !== '').map((line) => line.trim())
}

function ruleOf(pattern: string): Rule | undefined {
  const trimmed = pattern.trim()
  const isException = trimmed.startsWith('!')
  const glob = trimmed.slice(isException ? 1 : 0).trim()
  if (glob === '' && !isException) return undefined
  if (glob === '') throw new SyntaxError(`${JSON.stringify(pattern)} says nothing that stays`)
  const cleaned = posix.normalize(glob).replace(/(?<=.)\/$/, '')
  try {
    return new Rule(piecesOf(cleaned.replace(/^\/(?=.)/, '')), isException)
  } catch (error) {
    throw new SyntaxError(`${JSON.stringify(pattern)}: ${(error as Error).message}`, { cause: error })
  }
}

function piecesOf(glob: string): Piece[] {
  // Behind a `**` that begins a pattern without other signs, moby takes the end of the path for the pattern, also within a name.
  const [, ending] = /^\*\*(?!\/)([^*?[\\]+)$/.exec(glob) ?? []
  if (ending !== undefined) return [{ is: 'rest' }, ...Array.from(ending, characterOf)]
  const pieces: Piece[] = []
  const characters = Array.from(glob)
  for (let at = 0; at < characters.length; at += 1) {
    const character = characters[at] ?? ''
    if (character === '*' && characters[at + 1] === '*') {
      at += characters[at + 2] === '/' ? 2 : 1
      if (at + 1 === characters.length) pieces.push({ is: 'rest' })
      else pieces.push({ is: 'folders' }, { is: 'inside' })
    } else if (character === '*') pieces.push({ is: 'some' })
    else if (character === '?') pieces.push({ is: 'any' })
    else if (character === '[') {
      const { piece, length } = classAt(characters, at)
      pieces.push(piece)
      at += length - 1
    } else if (character === '\\') {
      at += 1
      pieces.push(characterOf(characters[at] ?? missing('a character after the last backslash')))
    } else pieces.push(characterOf(character))
  }
  return pieces
}

function characterOf(character: string): Piece {
  return { is: 'character', code: character.codePointAt(0) ?? 0 }
}

function classAt(characters: readonly string[], start: number): { piece: Piece; length: number } {
  let at = start + 1
  const isNegated = characters[at] === '^'
  if (isNegated) at += 1
  const ranges: [number, number][] = []
  const member = (): number => {
    const isEscaped = characters[at] === '\\'
    if (isEscaped) at += 1
    const character = characters[at]
    at += 1
    if (character === undefined || (!isEscaped && (character === '-' || character === ']'))) missing('a member of [')
    return character.codePointAt(0) ?? 0
  }
  do {
    const low = member()
    const isRange = characters[at] === '-'
    if (isRange) at += 1
    ranges.push([low, isRange ? member() : low])
    if (at >= characters.length) missing(']')
  } while (characters[at] !== ']')
  return { piece: { is: 'class', isNegated, ranges }, length: at + 1 - start }
}

function missing(what: string): never {
  throw new SyntaxError(`${what} is missing`)
}

const names = new TextDecoder('utf-8', { ignoreBOM: true })

/** A name as the characters that `?` counts. Bytes that are no UTF-8 are characters that no pattern names. */
function textOf(name: string): string {
  // oxlint-disable-next-line no-control-regex -- ASCII needs no decoder
  if (/^[\0-\x7f]*$/.test(name)) return name
  return names.decode(Uint8Array.from(name, (byte) => byte.charCodeAt(0)))
}

class Rule {
  readonly #pieces: readonly Piece[]
  /** `!`: what fits stays. */
  readonly isException: boolean
  /** By state: the last step that has led there, so that none is there twice. */
  readonly #seen: Float64Array
  #step = 0

  constructor(pieces: readonly Piece[], isException: boolean) {
    this.#pieces = pieces
    this.isException = isException
    this.#seen = new Float64Array(pieces.length + 1)
  }

  get start(): number[] {
    const states: number[] = []
    this.#step += 1
    this.#add(states, 0)
    return states
  }

  isEnd(states: readonly number[]): boolean {
    return states.includes(this.#pieces.length)
  }

  /** The states after a text, each once. */
  after(before: readonly number[], text: string): readonly number[] {
    let states = before
    for (const character of text) {
      if (states.length === 0) return states
      const code = character.codePointAt(0) ?? 0
      const following: number[] = []
      this.#step += 1
      for (const state of states) {
        if (!goesOn(this.#pieces[state], code)) continue
        const piece = this.#pieces[state]?.is
        const stays = piece === 'some' || piece === 'rest' || piece === 'inside'
        if (stays) this.#add(following, state)
        if (!stays || (piece === 'inside' && code === slash)) this.#add(following, state + 1)
      }
      states = following
    }
    return states
  }

  /** A state, and those that pieces which may stand for nothing lead to. */
  #add(states: number[], first: number): void {
    for (let state = first; this.#seen[state] !== this.#step; state += 1) {
      this.#seen[state] = this.#step
      states.push(state)
      const piece = this.#pieces[state]?.is
      if (piece === 'folders') this.#add(states, state + 2)
      else if (piece !== 'some' && piece !== 'rest') return
    }
  }
}

/** Whether the piece takes the character. `inside` does what `folders` beside it stands for. */
function goesOn(piece: Piece | undefined, code: number): boolean {
  switch (piece?.is) {
    case 'character':
      return piece.code === code
    case 'any':
    case 'some':
      return code !== slash
    case 'class':
      return piece.ranges.some(([low, high]) => low <= code && code <= high) !== piece.isNegated
    case 'inside':
    case 'rest':
      return true
    case 'folders':
    case undefined:
      return false
  }
}
