import { readdir, readFile } from 'node:fs/promises'

/** Names are strings of bytes (`latin1`), since those of files may be no UTF-8. Paths are relative, with `/`. */
interface Rule {
  pattern: RegExp
  isFolderOnly: boolean
  isExclusion: boolean
}

/** What `readdir` tells of a file or folder. */
export interface Found {
  path: string
  isFolder: boolean
}

/** Patterns as in `gitignore(5)`: of those that fit, the last one decides, and what is below an excluded folder stays out. */
export class Ignore {
  readonly #rules: Rule[] = []
  readonly #readsFiles: boolean

  /** `gitignore`: files of that name count too, and `.git` stays out. */
  constructor(patterns: readonly string[], { gitignore = false }: { gitignore?: boolean } = {}) {
    this.#readsFiles = gitignore
    this.add([...(gitignore ? ['.git'] : []), ...patterns])
  }

  /** Adds lines that count below a folder, `''` for the outermost. */
  add(lines: readonly string[], folder = ''): void {
    for (const line of lines) {
      const rule = ruleOf(Buffer.from(line).toString('latin1'), folder)
      if (rule !== undefined) this.#rules.push(rule)
    }
  }

  /** Whether the rules name the path itself. */
  excludes({ path, isFolder }: Found): boolean {
    const fitting = this.#rules.filter((one) => (isFolder || !one.isFolderOnly) && one.pattern.test(path))
    return fitting.at(-1)?.isExclusion ?? false
  }

  /** Whether the path or a folder above it is excluded. */
  excludesBelow({ path, isFolder }: Found): boolean {
    const ends = [...path.matchAll(/\//g)].map(({ index }) => ({ path: path.slice(0, index), isFolder: true }))
    return [...ends, { path, isFolder }].some((found) => this.excludes(found))
  }

  /** All that a folder holds and the rules leave, folders before what they hold. A folder that is gone meanwhile holds nothing. */
  async *walk(root: string, folder = ''): AsyncIterable<Found> {
    const bytes = Buffer.concat([Buffer.from(root), Buffer.from(folder === '' ? '' : `/${folder}`, 'latin1')])
    if (this.#readsFiles) await this.#read(bytes, folder)
    const entries = await readdir(bytes, { withFileTypes: true, encoding: 'buffer' }).catch((error: unknown) => {
      if (folder !== '' && ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return []
      throw error
    })
    for (const entry of entries) {
      const found = {
        path: (folder === '' ? '' : `${folder}/`) + entry.name.toString('latin1'),
        isFolder: entry.isDirectory(),
      }
      if (this.excludes(found)) continue
      yield found
      if (found.isFolder) yield* this.walk(root, found.path)
    }
  }

  async #read(folder: Buffer, path: string): Promise<void> {
    const text = await readFile(Buffer.concat([folder, Buffer.from('/.gitignore')]), 'utf8').catch(() => '')
    this.add(text.split(/\r?\n/), path)
  }
}

function ruleOf(line: string, folder: string): Rule | undefined {
  const text = line.startsWith('#') ? '' : line.replace(/(?<!\\) +$/, '')
  const isExclusion = !text.startsWith('!')
  const isFolderOnly = text.endsWith('/')
  const glob = text.slice(isExclusion ? 0 : 1, isFolderOnly ? -1 : undefined)
  if (glob === '' || glob === '/') return undefined
  // A slash binds the pattern to its folder.
  const isBound = glob.includes('/')
  const inside = regexOf(glob.replace(/^\//, ''))
  const start = folder === '' ? '' : `${escaped(folder)}/`
  return { pattern: new RegExp(`^${start}${isBound ? '' : '(?:.*/)?'}${inside}$`, 's'), isFolderOnly, isExclusion }
}

const pieces = /\*\*\/|\/\*\*$|\*+|\?|\[[!^]?\]?[^\]]*\]|\\?[^]/g

/** Of a pattern as `fnmatch(3)` takes it with `FNM_PATHNAME`, and `**`. */
function regexOf(glob: string): string {
  return [...glob.matchAll(pieces)]
    .map(([piece]) => {
      if (piece === '**/') return '(?:.*/)?'
      if (piece === '/**') return '/.*'
      if (piece.startsWith('*')) return '[^/]*'
      if (piece === '?') return '[^/]'
      if (piece.startsWith('[') && piece.length > 2) return classOf(piece)
      return escaped(piece.length > 1 && piece.startsWith('\\') ? piece.slice(1) : piece)
    })
    .join('')
}

function classOf(piece: string): string {
  const [, not = '', inside = ''] = /^\[([!^]?)(.*)\]$/s.exec(piece) ?? []
  const members = inside.replaceAll(/[\\\]^[]/g, String.raw`\$&`)
  return not === '' ? `(?!/)[${members}]` : `[^/${members}]`
}

function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`)
}

/** Arguments by which `find .` does not go into what the patterns exclude. There `*` of a pattern with a slash fits slashes too. */
export function findArguments(patterns: readonly string[]): string[] {
  const tests = patterns.flatMap((pattern) => {
    const glob = pattern.replace(/\/$/, '')
    if (glob === '' || pattern.startsWith('!')) {
      throw new TypeError(`exclude: ${JSON.stringify(pattern)} excludes nothing in a sandbox`)
    }
    const name = glob.includes('/') ? ['-path', `./${glob.replace(/^\//, '').replaceAll('**', '*')}`] : ['-name', glob]
    return ['-o', ...(pattern.endsWith('/') ? ['-type', 'd'] : []), ...name]
  })
  return tests.length === 0 ? [] : ['(', ...tests.slice(1), ')', '-prune', '-o']
}
