import { posix } from 'node:path'
import { Glob, textOfName } from './glob.ts'

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
      states: this.#rules.map(({ glob }) => glob.start),
    }
  }

  excludes(path: string): boolean {
    return path.split('/').reduce((place, name) => this.enter(place, name), this.root).isExcluded
  }

  /** What all matches have cost so far: for each character of a path, the states that it was compared with. */
  get steps(): number {
    return this.#rules.reduce((sum, { glob }) => sum + glob.steps, 0)
  }

  /** The place of an entry of a folder. */
  enter(folder: Place, name: string): Place {
    const text = (folder === this.root ? '' : '/') + textOfName(name)
    const fits: boolean[] = []
    const states: (readonly number[])[] = []
    let isExcluded = false
    for (const [index, { glob, isException }] of this.#rules.entries()) {
      const before = folder.states[index] ?? []
      const isFixed = folder.fits[index] ?? false
      const after = isFixed ? [] : glob.after(before, text)
      states.push(after)
      fits.push(isFixed || glob.isEnd(after))
      if (fits[index]) isExcluded = !isException
    }
    return { isExcluded, fits, states }
  }

  /** Whether something below an excluded folder may stay. */
  mayKeepBelow(folder: Place): boolean {
    return this.#rules.some(
      ({ glob, isException }, index) => isException && glob.after(folder.states[index] ?? [], '/').length > 0,
    )
  }
}

/** The patterns of a `.dockerignore`: its lines without blank ones and comments. */
export function patternsIn(text: string): string[] {
  const lines = text.replace(/^\ufeff/, '').split(/\r?\n/)
  return lines.filter((line) => !line.startsWith('#') && line.trim() !== '').map((line) => line.trim())
}

interface Rule {
  glob: Glob
  /** `!`: what fits stays. */
  isException: boolean
}

function ruleOf(pattern: string): Rule | undefined {
  const trimmed = pattern.trim()
  const isException = trimmed.startsWith('!')
  const path = trimmed.slice(isException ? 1 : 0).trim()
  if (path === '' && !isException) return undefined
  if (path === '') throw new SyntaxError(`${JSON.stringify(pattern)} says nothing that stays`)
  const cleaned = posix.normalize(path).replace(/(?<=.)\/$/, '')
  try {
    return { glob: Glob.ofPath(cleaned.replace(/^\/(?=.)/, '')), isException }
  } catch (error) {
    throw new SyntaxError(`${JSON.stringify(pattern)}: ${(error as Error).message}`, { cause: error })
  }
}
