import type { SandboxInfo } from 'atoll-sdk'
import { Search } from 'lucide-react'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { formatCount } from '../../lib/format.ts'
import { cx } from '../../ui/cx.ts'
import { inputLook } from '../../ui/field.tsx'
import { type ListSearch, states } from './search.ts'

/** Text and state by which the list is cut down. The key `/` leads to it. */
export function ListFilter({
  rows,
  text,
  state,
  onChange,
}: {
  rows: readonly SandboxInfo[]
  text: string | undefined
  state: ListSearch['state']
  onChange: (change: { text?: string | undefined; state?: ListSearch['state'] | undefined }) => void
}): ReactNode {
  const input = useRef<HTMLInputElement>(null)
  // The address follows what is typed with a delay, so while the reader types the field is ahead of it.
  const [typed, setTyped] = useState(text ?? '')
  useEffect(() => {
    if (document.activeElement !== input.current) setTyped(text ?? '')
  }, [text])
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const isTyping =
        event.target instanceof HTMLElement && event.target.closest('input,textarea,select,[role=dialog]')
      if (event.key !== '/' || event.ctrlKey || event.metaKey || isTyping) return
      event.preventDefault()
      input.current?.focus()
    }
    addEventListener('keydown', focus)
    return () => removeEventListener('keydown', focus)
  }, [])
  const counts = new Map<string, number>()
  for (const { status } of rows) counts.set(status, (counts.get(status) ?? 0) + 1)
  const choices = [undefined, ...states.filter((one) => one === state || (counts.get(one) ?? 0) > 0)]
  return (
    <div role="search" className="flex flex-wrap items-center gap-2">
      <div className="relative min-w-48 flex-1 sm:max-w-xs">
        <Search aria-hidden="true" className="absolute top-2 left-2.5 size-4 text-soft" />
        <input
          ref={input}
          type="search"
          aria-label="Filter by name, id, image, tag or metadata"
          placeholder="Name, id, image, tag …"
          autoComplete="off"
          spellCheck={false}
          className={cx(inputLook, 'pl-8')}
          value={typed}
          onChange={({ target: { value } }) => {
            setTyped(value)
            onChange({ text: value === '' ? undefined : value })
          }}
        />
      </div>
      <div role="group" aria-label="State" className="flex flex-wrap gap-1">
        {choices.map((one) => (
          <button
            key={one ?? 'all'}
            type="button"
            aria-pressed={state === one}
            onClick={() => onChange({ state: one })}
            className="h-8 rounded-md border border-transparent px-2.5 text-soft hover:bg-panel hover:text-ink aria-pressed:border-line aria-pressed:bg-raised aria-pressed:font-medium aria-pressed:text-ink"
          >
            {one ?? 'all'}
            <span className="ml-1.5 text-xs tabular-nums">
              {formatCount(one === undefined ? rows.length : (counts.get(one) ?? 0))}
            </span>
          </button>
        ))}
      </div>
    </div>
  )
}
