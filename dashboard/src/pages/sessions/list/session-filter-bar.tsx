import { Search } from 'lucide-react'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { cx } from '../../../ui/cx.ts'
import { inputLook } from '../../../ui/field.tsx'
import { activities, type ListSearch } from '../search.ts'

/** A search reads histories on the server, one at a time for an organisation: it begins when the reader pauses. */
const pauseMs = 400
const searchMax = 200

interface SessionFilterBarProps {
  search: ListSearch
  onChange: (change: Partial<Record<keyof ListSearch, unknown>>) => void
}

/** Text, user and state by which the list is cut down. */
export function SessionFilterBar({ search: { search, user, state }, onChange }: SessionFilterBarProps): ReactNode {
  return (
    <div role="search" className="flex flex-wrap items-center gap-2">
      <div className="relative min-w-48 flex-1 sm:max-w-xs">
        <Search aria-hidden="true" className="absolute top-2 left-2.5 size-4 text-soft" />
        <LateField
          label="Search in titles and messages"
          placeholder="Words of a title or message"
          value={search}
          className="pl-8"
          onSettle={(value) => onChange({ search: value })}
        />
      </div>
      <div className="min-w-32 flex-1 sm:max-w-48">
        <LateField
          label="Id of the user"
          placeholder="User"
          value={user}
          onSettle={(value) => onChange({ user: value })}
        />
      </div>
      <div className="min-w-32 sm:max-w-40">
        <select
          aria-label="State"
          className={inputLook}
          value={state ?? ''}
          onChange={({ target: { value } }) => onChange({ state: value === '' ? undefined : value })}
        >
          <option value="">all states</option>
          {activities.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
      </div>
    </div>
  )
}

interface LateFieldProps {
  label: string
  placeholder: string
  value: string | undefined
  className?: string
  onSettle: (value: string | undefined) => void
}

function LateField({ label, placeholder, value, className, onSettle }: LateFieldProps): ReactNode {
  const [typed, setTyped] = useState(value ?? '')
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  useEffect(() => () => clearTimeout(timer.current), [])
  useEffect(() => setTyped(value ?? ''), [value])
  return (
    <input
      type="search"
      aria-label={label}
      placeholder={placeholder}
      autoComplete="off"
      spellCheck={false}
      maxLength={searchMax}
      className={cx(inputLook, className)}
      value={typed}
      onChange={({ target }) => {
        setTyped(target.value)
        clearTimeout(timer.current)
        timer.current = setTimeout(() => onSettle(target.value === '' ? undefined : target.value), pauseMs)
      }}
    />
  )
}
