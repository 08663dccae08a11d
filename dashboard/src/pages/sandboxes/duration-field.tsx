import { useState, type ReactNode } from 'react'
import { cx } from '../../ui/cx.ts'
import { Field, inputLook } from '../../ui/field.tsx'

const units = [
  ['seconds', 1],
  ['minutes', 60],
  ['hours', 3600],
  ['days', 86_400],
] as const

interface DurationFieldProps {
  label: string
  hint?: ReactNode
  error?: string | undefined
  /** Whole seconds as a text; empty: what the placeholder says. */
  value: string
  onChange: (seconds: string) => void
  placeholder?: string
}

/** A time in the unit that the reader likes. */
export function DurationField({ label, hint, error, value, onChange, placeholder }: DurationFieldProps): ReactNode {
  const [unit, setUnit] = useState<number>(() => largestOf(Number(value)))
  const amount = value === '' ? '' : String(Number(value) / unit)
  const seconds = (text: string, by: number) => (text === '' ? '' : String(Math.round(Number(text) * by)))
  return (
    <Field label={label} hint={hint} error={error}>
      {(ids) => (
        <span className="flex gap-2">
          <input
            type="number"
            min={0}
            step="any"
            inputMode="numeric"
            {...ids}
            placeholder={placeholder}
            className={cx(inputLook, 'min-w-16! flex-1')}
            value={amount}
            onChange={({ target }) => onChange(seconds(target.value, unit))}
          />
          <select
            aria-label={`Unit of ${label}`}
            className={cx(inputLook, 'w-auto! shrink-0')}
            value={unit}
            onChange={({ target }) => {
              const next = Number(target.value)
              setUnit(next)
              onChange(seconds(amount, next))
            }}
          >
            {units.map(([name, size]) => (
              <option key={name} value={size}>
                {name}
              </option>
            ))}
          </select>
        </span>
      )}
    </Field>
  )
}

/** The largest unit of which the seconds are a whole number; minutes where there are none. */
function largestOf(seconds: number): number {
  if (seconds === 0) return 60
  return units.findLast(([, size]) => seconds % size === 0)?.[1] ?? 1
}
