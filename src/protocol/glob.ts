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

/**
 * A pattern of Go's `filepath.Match` as a machine: its states, which begin at `start`, are what the rest of a text has to go on with. It takes time
 * proportional to the lengths of the text and of the pattern, whatever they hold: both may be hostile, and a regular expression would need exponential
 * time for some.
 */
export class Glob {
  readonly #pieces: readonly Piece[]
  /** By state: the last step that has led there, so that none is there twice. */
  readonly #seen: Float64Array
  #step = 0
  /** What all matches have cost so far: for each character, the states, and the ranges of classes, that it was compared with. */
  steps = 0

  /** A pattern of one name. Throws `SyntaxError`, as the next. */
  static ofName(text: string): Glob {
    return new Glob(piecesOf(text, false))
  }

  /** A pattern of a path, in which `**` stands for any number of folders, as moby has it. */
  static ofPath(text: string): Glob {
    return new Glob(piecesOf(text, true))
  }

  private constructor(pieces: readonly Piece[]) {
    this.#pieces = pieces
    this.#seen = new Float64Array(pieces.length + 1)
  }

  /** The text, when it fits one alone. */
  get literal(): string | undefined {
    const codes = this.#pieces.flatMap((piece) => (piece.is === 'character' ? piece.code : []))
    return codes.length === this.#pieces.length ? codes.map((code) => String.fromCodePoint(code)).join('') : undefined
  }

  matches(text: string): boolean {
    return this.isEnd(this.after(this.start, text))
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
      this.steps += states.length
      for (const state of states) {
        const taken = this.#pieces[state]
        if (taken?.is === 'class') this.steps += taken.ranges.length
        if (!goesOn(taken, code)) continue
        const piece = taken?.is
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

function piecesOf(glob: string, isPath: boolean): Piece[] {
  // Behind a `**` that begins a pattern without other signs, moby takes the end of the path for the pattern, also within a name.
  const [, ending] = (isPath && /^\*\*(?!\/)([^*?[\\]+)$/.exec(glob)) || []
  if (ending !== undefined) return [{ is: 'rest' }, ...Array.from(ending, characterOf)]
  const pieces: Piece[] = []
  const characters = Array.from(glob)
  for (let at = 0; at < characters.length; at += 1) {
    const character = characters[at] ?? ''
    if (isPath && character === '*' && characters[at + 1] === '*') {
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

/** A name, whose bytes are given in latin1, as the characters that `?` counts. Bytes that are no UTF-8 are characters that no pattern names. */
export function textOfName(name: string): string {
  // oxlint-disable-next-line no-control-regex -- ASCII needs no decoder
  if (/^[\0-\x7f]*$/.test(name)) return name
  return names.decode(Uint8Array.from(name, (byte) => byte.charCodeAt(0)))
}
