import { Plus, X } from 'lucide-react'
import { useId, type ReactNode } from 'react'
import { Button, IconButton } from '../../ui/button.tsx'
import { cx } from '../../ui/cx.ts'
import { inputLook } from '../../ui/field.tsx'

/** A name and a value; those without a name do not count. */
export type Pair = readonly [name: string, value: string]

export function recordOf(pairs: readonly Pair[]): Record<string, string> {
  return Object.fromEntries(pairs.filter(([name]) => name.trim() !== '').map(([name, value]) => [name.trim(), value]))
}

interface PairsFieldProps {
  label: string
  /** What one of them is called: `variable`. */
  noun: string
  pairs: readonly Pair[]
  onChange: (pairs: readonly Pair[]) => void
  hint?: string
  error?: string | undefined
}

/** Names with values, a line each. */
export function PairsField({ label, noun, pairs, onChange, hint, error }: PairsFieldProps): ReactNode {
  const id = useId()
  const set = (index: number, pair: Pair) => onChange(pairs.map((now, at) => (at === index ? pair : now)))
  const note = error ?? hint
  return (
    <fieldset aria-describedby={note === undefined ? undefined : id} className="flex min-w-0 flex-col gap-1.5">
      <legend className="mb-1 font-medium">{label}</legend>
      {pairs.map(([name, value], index) => (
        <div key={index} className="flex gap-2">
          <input
            aria-label={`Name of ${noun} ${index + 1}`}
            placeholder="name"
            autoComplete="off"
            spellCheck={false}
            className={cx(inputLook, 'font-mono')}
            value={name}
            onChange={({ target }) => set(index, [target.value, value])}
          />
          <input
            aria-label={`Value of ${noun} ${index + 1}`}
            placeholder="value"
            autoComplete="off"
            spellCheck={false}
            className={cx(inputLook, 'font-mono')}
            value={value}
            onChange={({ target }) => set(index, [name, target.value])}
          />
          <IconButton
            label={`Remove ${noun} ${index + 1}`}
            icon={<X className="size-4" />}
            onClick={() => onChange(pairs.filter((_pair, at) => at !== index))}
          />
        </div>
      ))}
      <Button size="small" className="self-start" onClick={() => onChange([...pairs, ['', '']])}>
        <Plus aria-hidden="true" className="size-4" /> Add a {noun}
      </Button>
      {note !== undefined && (
        <p id={id} className={cx('text-[13px]', error === undefined ? 'text-soft' : 'text-bad')}>
          {note}
        </p>
      )}
    </fieldset>
  )
}
