import { comparedFilesMax, type ComparedFile, type TreeComparison } from '../../sandbox/ports/disk-trees.ts'

/** By the letter of git's raw format (git-diff(1), § Raw output format). */
const kinds: Readonly<Record<string, ComparedFile['change']>> = {
  A: 'added',
  D: 'deleted',
  M: 'modified',
  T: 'modified',
  R: 'renamed',
}

interface Lines {
  addedLines: number
  removedLines: number
  isBinary: boolean
}

/** Reads what `git diff-tree -z --raw --numstat` has printed. Throws for anything else. */
export function parseChanges(output: Buffer): TreeComparison {
  // As latin1 every name survives until all have been matched.
  const parts = output.toString('latin1').split('\0')
  const next = () => {
    const part = parts.shift()
    if (part === undefined) throw new Error('the output of a comparison breaks off')
    return part
  }
  const changes: { kind: ComparedFile['change']; path: string; oldPath?: string }[] = []
  while (parts[0]?.startsWith(':')) {
    const letter = next().split(' ')[4]?.[0] ?? ''
    const kind = kinds[letter]
    if (kind === undefined) throw new Error(`the output of a comparison has the change ${letter}`)
    const first = next()
    changes.push(kind === 'renamed' ? { kind, oldPath: first, path: next() } : { kind, path: first })
  }
  const lines = new Map<string, Lines>()
  while (parts.length > 1) {
    const [, added, removed, name] = /^(\d+|-)\t(\d+|-)\t([^]*)$/.exec(next()) ?? []
    if (added === undefined || removed === undefined || name === undefined)
      throw new Error('the output of a comparison has no numbers of lines')
    if (name === '') next()
    const path = name === '' ? next() : name
    if (path === '') throw new Error('the output of a comparison has a file without a name')
    lines.set(path, { addedLines: Number(added) || 0, removedLines: Number(removed) || 0, isBinary: added === '-' })
  }
  const files = changes
    .toSorted((one, other) => (one.path < other.path ? -1 : 1))
    .map(({ kind, path, oldPath }) => ({
      path: textOf(path),
      ...(oldPath === undefined ? {} : { oldPath: textOf(oldPath) }),
      change: kind,
      ...(lines.get(path) ?? unknownLines),
    }))
  const sum = (of: 'addedLines' | 'removedLines') => files.reduce((total, file) => total + file[of], 0)
  return {
    files: files.slice(0, comparedFilesMax),
    addedLines: sum('addedLines'),
    removedLines: sum('removedLines'),
    isCut: files.length > comparedFilesMax,
  }
}

const unknownLines: Lines = { addedLines: 0, removedLines: 0, isBinary: false }

function textOf(name: string): string {
  return Buffer.from(name, 'latin1').toString('utf8')
}
