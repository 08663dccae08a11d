import { useState } from 'react'
import type { SortBy, TreeOrder } from './rows.ts'

const stored = 'atoll.files'
const choices: readonly SortBy[] = ['name', 'size', 'time']

/** How the reader wants to see files, which the browser remembers. */
export function useTreeOrder(): [order: TreeOrder, set: (order: TreeOrder) => void] {
  const [order, setOrder] = useState(read)
  const set = (next: TreeOrder) => {
    setOrder(next)
    localStorage.setItem(stored, JSON.stringify(next))
  }
  return [order, set]
}

function read(): TreeOrder {
  const found = parsed(localStorage.getItem(stored) ?? '')
  const sortBy = choices.find((choice) => choice === found['sortBy']) ?? 'name'
  return { sortBy, isDescending: found['isDescending'] === true, showsHidden: found['showsHidden'] === true }
}

function parsed(text: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(text)) as Record<string, unknown>
  } catch {
    return {}
  }
}
