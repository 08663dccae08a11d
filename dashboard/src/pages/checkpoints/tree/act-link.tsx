import { Link, type LinkProps } from '@tanstack/react-router'
import type { ReactNode } from 'react'

/** A link that looks as the buttons beside it. */
export function ActLink({ children, ...link }: LinkProps & { children: ReactNode }): ReactNode {
  return (
    <Link
      {...link}
      className="inline-flex h-8 shrink-0 items-center gap-1.5 rounded-md border bg-raised px-3 font-medium whitespace-nowrap hover:border-accent"
    >
      {children}
    </Link>
  )
}
