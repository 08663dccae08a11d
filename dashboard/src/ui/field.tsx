import { useId, type ComponentProps, type ReactNode } from 'react'
import { cx } from './cx.ts'

export const inputLook =
  'h-8 w-full min-w-0 rounded-md border bg-paper px-2.5 placeholder:text-soft disabled:opacity-50'

interface FieldProps {
  label: string
  /** What the value means, its unit and bounds. */
  hint?: ReactNode
  /** Why the value is refused. */
  error?: string | undefined
  children: (ids: {
    id: string
    'aria-describedby': string | undefined
    'aria-invalid': boolean | undefined
  }) => ReactNode
}

/** A label with its control, a hint and the reason of a refusal, tied together for screen readers. */
export function Field({ label, hint, error, children }: FieldProps): ReactNode {
  const id = useId()
  const hasNote = hint !== undefined || error !== undefined
  return (
    <div className="flex flex-col gap-1">
      <label htmlFor={id} className="font-medium">
        {label}
      </label>
      {children({
        id,
        'aria-describedby': hasNote ? `${id}-note` : undefined,
        'aria-invalid': error !== undefined || undefined,
      })}
      {hasNote && (
        <p id={`${id}-note`} className={cx('text-[13px]', error === undefined ? 'text-soft' : 'text-bad')}>
          {error ?? hint}
        </p>
      )}
    </div>
  )
}

type TextFieldProps = Omit<FieldProps, 'children'> & ComponentProps<'input'>

export function TextField({ label, hint, error, className, ...input }: TextFieldProps): ReactNode {
  return (
    <Field label={label} hint={hint} error={error}>
      {(ids) => (
        <input autoComplete="off" spellCheck={false} {...input} {...ids} className={cx(inputLook, className)} />
      )}
    </Field>
  )
}

type SelectFieldProps = Omit<FieldProps, 'children'> & ComponentProps<'select'>

/** The browser's own list: it works on a phone and with every reader. */
export function SelectField({ label, hint, error, className, children, ...select }: SelectFieldProps): ReactNode {
  return (
    <Field label={label} hint={hint} error={error}>
      {(ids) => (
        <select {...select} {...ids} className={cx(inputLook, className)}>
          {children}
        </select>
      )}
    </Field>
  )
}

export function CheckField({
  label,
  hint,
  ...input
}: { label: string; hint?: string } & Omit<ComponentProps<'input'>, 'type'>): ReactNode {
  return (
    <label className="flex items-start gap-2">
      <input type="checkbox" {...input} className="mt-1 size-4 shrink-0 accent-accent" />
      <span>
        {label}
        {hint !== undefined && <span className="block text-[13px] text-soft">{hint}</span>}
      </span>
    </label>
  )
}
