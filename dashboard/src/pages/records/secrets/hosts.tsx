import type { ReactNode } from 'react'
import { Field, inputLook } from '../../../ui/field.tsx'
import { cx } from '../../../ui/cx.ts'

const shownInRow = 3
const toldMax = 50

/** Host names of a text with one on each line, or commas between. */
export function hostsOf(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter((host) => host !== ''))]
}

export function HostsField({
  label,
  hint,
  value,
  onChange,
}: {
  label: string
  hint: string
  value: string
  onChange: (value: string) => void
}): ReactNode {
  return (
    <Field label={label} hint={hint}>
      {(ids) => (
        <textarea
          {...ids}
          rows={3}
          autoComplete="off"
          spellCheck={false}
          value={value}
          onChange={({ target }) => onChange(target.value)}
          placeholder={'api.example.com\n*.example.com'}
          className={cx(inputLook, 'h-auto py-1.5 font-mono text-[13px]')}
        />
      )}
    </Field>
  )
}

/** The first few host names. */
export function HostsText({
  hosts,
  none,
  shownMax = shownInRow,
}: {
  hosts: readonly string[]
  none: string
  shownMax?: number
}): ReactNode {
  if (hosts.length === 0) return <span className="text-soft">{none}</span>
  const more = hosts.length - shownMax
  return (
    <span title={hosts.slice(0, toldMax).join('\n')} className="font-mono text-[13px]">
      {hosts.slice(0, shownMax).join(', ')}
      {more > 0 && ` and ${more} more`}
    </span>
  )
}
