import type { ComponentProps, ReactNode } from 'react'
import { cx } from './cx.ts'

const looks = {
  primary: 'bg-accent text-accent-ink border-transparent hover:opacity-90',
  plain: 'bg-raised border-line hover:border-accent',
  quiet: 'border-transparent text-soft hover:bg-panel hover:text-ink',
  danger: 'bg-raised border-line text-bad hover:border-bad hover:bg-bad-faint',
}

interface ButtonProps extends ComponentProps<'button'> {
  look?: keyof typeof looks
  size?: 'small' | 'normal'
  /** Disables the button and says to screen readers that its work is under way. */
  isBusy?: boolean
}

export function Button({
  look = 'plain',
  size = 'normal',
  isBusy = false,
  className,
  children,
  ...rest
}: ButtonProps): ReactNode {
  const shape = size === 'small' ? 'h-7 gap-1 px-2 text-[13px]' : 'h-8 gap-1.5 px-3'
  return (
    <button
      type="button"
      {...rest}
      aria-busy={isBusy || undefined}
      disabled={rest.disabled === true || isBusy}
      className={cx(
        'inline-flex shrink-0 items-center justify-center rounded-md border font-medium whitespace-nowrap transition-colors disabled:cursor-not-allowed disabled:opacity-50',
        shape,
        looks[look],
        isBusy && 'animate-pulse',
        className,
      )}
    >
      {children}
    </button>
  )
}

interface IconButtonProps extends Omit<ButtonProps, 'children' | 'aria-label'> {
  /** What it does, for screen readers and as a tooltip. */
  label: string
  icon: ReactNode
}

export function IconButton({ label, icon, look = 'quiet', className, ...rest }: IconButtonProps): ReactNode {
  return (
    <Button {...rest} look={look} aria-label={label} title={label} className={cx('w-8 px-0!', className)}>
      {icon}
    </Button>
  )
}
