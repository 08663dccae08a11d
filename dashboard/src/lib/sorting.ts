import type { SortingState } from '@tanstack/react-table'

/** The order of a table as an address has it: `size`, or `-size` for the largest first. */
export function sortingOf(text: string | undefined, fallback: SortingState = []): SortingState {
  if (text === undefined) return fallback
  const desc = text.startsWith('-')
  return [{ id: desc ? text.slice(1) : text, desc }]
}

/** Undefined where nothing is sorted. */
export function sortText([first]: SortingState): string | undefined {
  return first === undefined ? undefined : `${first.desc ? '-' : ''}${first.id}`
}
