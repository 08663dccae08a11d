import type { UseQueryResult } from '@tanstack/react-query'
import type { ComparedFile } from 'atoll-sdk'
import type { Hunk } from 'gitdiff-parser'
import type { FilePatch } from './file-patch.ts'
import type { PatchFile, PatchIndex } from './patch-index.ts'

/** A changed file, and where the patch has it. */
export interface Entry {
  file: ComparedFile
  patch?: PatchFile
}

/** What is drawn below each other. `head` is the number of the row with the file that it belongs to. */
export type Row = { head: number; file: number } & (
  | { type: 'file'; entry: Entry }
  | { type: 'part'; entry: Entry; part: Hunk }
  | { type: 'note'; text: string }
  | { type: 'reading' }
  | { type: 'error'; error: unknown; retry: () => void }
)

/** The files in their order, each with its place in the patch, and behind them those that the patch alone has. */
export function entriesOf(files: readonly ComparedFile[], index: PatchIndex | undefined, isPartial: boolean): Entry[] {
  if (index === undefined) return files.map((file) => ({ file }))
  // Two names can be one where bytes were replaced.
  const byPath = Map.groupBy(index.files, ({ path }) => path)
  const entries = files.map((file): Entry => {
    const patch = byPath.get(file.path)?.shift()
    return patch === undefined ? { file } : { file, patch }
  })
  if (!isPartial) return entries
  return [...entries, ...[...byPath.values()].flat().map((patch): Entry => ({ file: patch, patch }))]
}

interface Open {
  /** Numbers of entries. */
  open: ReadonlySet<number>
  patch: UseQueryResult<PatchIndex>
  changes: ReadonlyMap<PatchFile, UseQueryResult<FilePatch>>
}

export function rowsOf(entries: readonly Entry[], known: Open): Row[] {
  const rows: Row[] = []
  for (const [file, entry] of entries.entries()) {
    const head = rows.length
    rows.push({ type: 'file', entry, head, file })
    if (known.open.has(file)) rows.push(...contentOf(entry, known, { head, file }))
  }
  return rows
}

function contentOf(entry: Entry, { patch, changes }: Open, place: { head: number; file: number }): Row[] {
  const note = (text: string): Row => ({ ...place, type: 'note', text })
  if (patch.isError) return [{ ...place, type: 'error', error: patch.error, retry: () => void patch.refetch() }]
  if (patch.data === undefined) return [{ ...place, type: 'reading' }]
  if (entry.patch === undefined)
    return [
      note(
        patch.data.isCut
          ? 'The patch ends before this file: the server makes none that is longer than 64 MiB.'
          : 'The files have changed since they were listed: the patch does not have this one any more.',
      ),
    ]
  const result = changes.get(entry.patch)
  if (result?.isError === true)
    return [{ ...place, type: 'error', error: result.error, retry: () => void result.refetch() }]
  if (result?.data === undefined) return [{ ...place, type: 'reading' }]
  const { parts, notes } = result.data
  const drawn = parts.map((part): Row => ({ ...place, type: 'part', entry, part }))
  const about = [...notesOf(entry.patch, parts.length === 0), ...notes].map(note)
  return [...drawn, ...about]
}

function notesOf({ isBinary, change, oldPath, oldMode, newMode }: PatchFile, isEmpty: boolean): string[] {
  if (isBinary) return ['No text, or too long to be compared by lines: it has none to show.']
  if (!isEmpty) return []
  if (change === 'renamed') return [`Its contents are those of ${oldPath ?? 'the file before'}.`]
  if (change === 'modified' && oldMode !== newMode) return ['Its contents are the same.']
  return ['The file is empty.']
}
