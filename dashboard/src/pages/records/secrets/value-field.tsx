import { useState, type ReactNode } from 'react'
import { cx } from '../../../ui/cx.ts'
import { CheckField, Field, inputLook } from '../../../ui/field.tsx'

const valueBytesMax = 64 * 1024

/** Takes a value of several lines, which an input of type password does not, and shows dots in its place. */
export function ValueField({
  value,
  onChange,
  autoFocus,
}: {
  value: string
  onChange: (value: string) => void
  autoFocus: boolean
}): ReactNode {
  const [isShown, setShown] = useState(false)
  const bytes = new TextEncoder().encode(value).length
  const fault =
    bytes > valueBytesMax
      ? 'It has more than 64 KiB.'
      : value.includes('\0')
        ? 'It must not hold a NUL character.'
        : undefined
  return (
    <div className="flex flex-col gap-2">
      <Field label="Value" hint="At most 64 KiB. No call and no page shows it again." error={fault}>
        {(ids) => (
          <textarea
            {...ids}
            required
            rows={2}
            autoFocus={autoFocus}
            name="secret-value"
            autoComplete="off"
            autoCorrect="off"
            autoCapitalize="off"
            spellCheck={false}
            data-1p-ignore
            data-lpignore="true"
            value={value}
            onChange={({ target }) => onChange(target.value)}
            className={cx(inputLook, 'h-auto py-1.5 font-mono text-[13px]', !isShown && '[-webkit-text-security:disc]')}
          />
        )}
      </Field>
      <CheckField label="Show what I type" checked={isShown} onChange={({ target }) => setShown(target.checked)} />
    </div>
  )
}
