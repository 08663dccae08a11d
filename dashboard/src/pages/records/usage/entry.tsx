import { type FormEvent, type ReactNode, useState } from 'react'
import { Button } from '../../../ui/button.tsx'
import { cx } from '../../../ui/cx.ts'
import { inputLook } from '../../../ui/field.tsx'

/** A text that counts once it is entered. */
export function Entry({
  label,
  placeholder,
  value,
  onEnter,
}: {
  label: string
  placeholder: string
  value: string
  onEnter: (value: string) => void
}): ReactNode {
  const [text, setText] = useState(value)
  const enter = (event: FormEvent) => {
    event.preventDefault()
    onEnter(text.trim())
  }
  return (
    <form onSubmit={enter} className="flex items-center gap-1">
      <input
        aria-label={label}
        title={label}
        placeholder={placeholder}
        autoComplete="off"
        spellCheck={false}
        maxLength={200}
        value={text}
        onChange={({ target }) => setText(target.value)}
        className={cx(inputLook, 'max-w-44')}
      />
      <Button type="submit" size="small" disabled={text.trim() === value}>
        Apply
      </Button>
    </form>
  )
}
