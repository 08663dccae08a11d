import { useRef, type KeyboardEvent } from 'react'
import type { EntryRow } from './file-tree.tsx'
import { keyOf } from './place.ts'
import type { Row } from './rows.ts'

interface TreeActs {
  rows: readonly Row[]
  onActive: (row: EntryRow) => void
  onOpen: (row: EntryRow) => void
  onFold: (row: EntryRow, isOpen: boolean) => void
  onRename: ((row: EntryRow) => void) | undefined
  onDelete: ((row: EntryRow) => void) | undefined
}

interface TreeView {
  /** -1: no row is active. */
  activeIndex: number
  pageRows: () => number
  reveal: (index: number) => void
}

/** Letters that follow each other within this time are one word. */
const wordPauseMs = 700

/** The keys of a tree as the ARIA patterns have them, and those of file managers: F2, Delete, and letters that find a name. */
export function useTreeKeys(acts: TreeActs, view: TreeView): (event: KeyboardEvent) => void {
  const word = useRef({ text: '', atMs: 0 })
  const { rows, onActive, onOpen, onFold, onRename, onDelete } = acts
  const { activeIndex } = view
  const active = entryAt(rows, activeIndex)
  /** The next entry from an index on, in a direction. */
  const seek = (from: number, step: 1 | -1) => {
    for (let index = from; index >= 0 && index < rows.length; index += step) {
      if (entryAt(rows, index) !== undefined) return index
    }
    return undefined
  }
  const go = (index: number | undefined) => {
    const row = index === undefined ? undefined : entryAt(rows, index)
    if (index === undefined || row === undefined) return
    onActive(row)
    view.reveal(index)
  }
  const find = (letter: string, atMs: number) => {
    const isOn = atMs - word.current.atMs < wordPauseMs
    const text = (isOn ? word.current.text : '') + letter.toLowerCase()
    word.current = { text, atMs }
    const from = activeIndex + (text.length === 1 ? 1 : 0)
    for (let step = 0; step < rows.length; step += 1) {
      const index = (from + step + rows.length) % rows.length
      if (entryAt(rows, index)?.entry.name.toLowerCase().startsWith(text) === true) return go(index)
    }
  }
  return (event) => {
    const { key, ctrlKey, altKey, metaKey, timeStamp } = event
    if (ctrlKey || altKey || metaKey) return
    const isWriting = timeStamp - word.current.atMs < wordPauseMs
    if (key === 'ArrowDown') go(seek(activeIndex + 1, 1))
    else if (key === 'ArrowUp') go(seek(activeIndex === -1 ? rows.length - 1 : activeIndex - 1, -1))
    else if (key === 'Home') go(seek(0, 1))
    else if (key === 'End') go(seek(rows.length - 1, -1))
    else if (key === 'PageDown')
      go(seek(Math.min(rows.length - 1, activeIndex + view.pageRows()), 1) ?? seek(rows.length - 1, -1))
    else if (key === 'PageUp') go(seek(Math.max(0, activeIndex - view.pageRows()), -1) ?? seek(0, 1))
    else if (key.length === 1 && (key !== ' ' || isWriting)) find(key, timeStamp)
    else if (active === undefined) return
    else if (key === 'ArrowRight') {
      if (active.entry.isDir && !active.isOpen) onFold(active, true)
      else if (active.isOpen) go(seek(activeIndex + 1, 1))
    } else if (key === 'ArrowLeft') {
      if (active.isOpen) onFold(active, false)
      else go(parentIndex(rows, activeIndex, active))
    } else if (key === 'Enter' || key === ' ') onOpen(active)
    else if (key === 'F2') onRename?.(active)
    else if (key === 'Delete') onDelete?.(active)
    else return
    event.preventDefault()
  }
}

function entryAt(rows: readonly Row[], index: number): EntryRow | undefined {
  const row = rows[index]
  return row?.type === 'entry' ? row : undefined
}

function parentIndex(rows: readonly Row[], from: number, { folder }: EntryRow): number | undefined {
  const key = keyOf(folder)
  for (let index = from - 1; index >= 0; index -= 1) {
    if (entryAt(rows, index)?.key === key) return index
  }
  return undefined
}
