import './diff.css'
import type { ComparedFile } from 'atoll-sdk'
import type { Change, Hunk } from 'gitdiff-parser'
import { memo, type ReactNode } from 'react'
import { Diff, Hunk as HunkLines, markEdits, tokenize, type HunkTokens, type TokenNode } from 'react-diff-view'

const types = { added: 'add', modified: 'modify', deleted: 'delete', renamed: 'rename' } as const
/** Of a part; beyond these what differs within lines is not marked, as it takes too long to find. */
const markedCharactersMax = 8000

/** A part of a hunk, with what differs within its lines. */
export const ChangedLines = memo(function ChangedLines({
  part,
  change,
  isSplit,
}: {
  part: Hunk
  change: ComparedFile['change']
  isSplit: boolean
}): ReactNode {
  const tokens = tokensOf(part)
  return (
    <div className="comparison">
      {part.content !== '' && (
        <p className="bg-panel px-2 py-0.5 font-mono text-xs break-all whitespace-pre-wrap text-soft">{part.content}</p>
      )}
      <Diff
        diffType={types[change]}
        viewType={isSplit ? 'split' : 'unified'}
        hunks={[part]}
        {...(tokens === undefined ? {} : { tokens })}
      >
        {(parts) => parts.map((one) => <HunkLines key={`${one.oldStart} ${one.newStart}`} hunk={one} />)}
      </Diff>
    </div>
  )
})

function tokensOf(part: Hunk): HunkTokens | undefined {
  const { changes } = part
  if (!changes.some(({ type }) => type === 'insert') || !changes.some(({ type }) => type === 'delete')) return undefined
  const characters = changes.reduce((sum, { content }) => sum + content.length, 0)
  if (characters > markedCharactersMax) return undefined
  // The library makes a list of all lines from the first of the file on. So it gets those of this part alone, and each list gets a hole before them.
  const before = { old: firstLine(changes, 'old') - 1, new: firstLine(changes, 'new') - 1 }
  const near = { ...part, changes: changes.map((change) => moved(change, before)) }
  const tokens = tokenize([near], { enhancers: [markEdits([near], { type: 'block' })] })
  return { old: after(before.old, tokens.old), new: after(before.new, tokens.new) }
}

function firstLine(changes: readonly Change[], side: 'old' | 'new'): number {
  for (const change of changes) {
    if (change.type === 'normal') return side === 'old' ? change.oldLineNumber : change.newLineNumber
    if (change.type === (side === 'old' ? 'delete' : 'insert')) return change.lineNumber
  }
  return 1
}

function moved(change: Change, before: { old: number; new: number }): Change {
  if (change.type === 'normal') {
    const { oldLineNumber, newLineNumber } = change
    return { ...change, oldLineNumber: oldLineNumber - before.old, newLineNumber: newLineNumber - before.new }
  }
  return { ...change, lineNumber: change.lineNumber - (change.type === 'delete' ? before.old : before.new) }
}

function after(lines: number, tokens: readonly TokenNode[][]): TokenNode[][] {
  const all: TokenNode[][] = []
  for (const [index, line] of tokens.entries()) all[lines + index] = line
  return all
}
