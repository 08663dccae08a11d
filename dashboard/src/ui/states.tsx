import { AtollError, ConnectionError, ForbiddenError } from 'atoll-sdk'
import { CircleAlert } from 'lucide-react'
import type { ReactNode } from 'react'
import { Button } from './button.tsx'

/** Says what is not there yet and offers the way to have it. */
export function EmptyState({
  title,
  children,
  actions,
}: {
  title: string
  children?: ReactNode
  actions?: ReactNode
}): ReactNode {
  return (
    <div className="flex flex-col items-center gap-3 rounded-lg border border-dashed px-6 py-12 text-center">
      <p className="font-semibold">{title}</p>
      {children !== undefined && <div className="w-full max-w-prose text-soft">{children}</div>}
      {actions !== undefined && <div className="flex flex-wrap justify-center gap-2">{actions}</div>}
    </div>
  )
}

/** What went wrong, in the server's words, and what can be done about it. */
export function reasonOf(error: unknown): string {
  if (error instanceof ForbiddenError) return `${error.message}. Sign in with a key that may do this.`
  if (error instanceof ConnectionError)
    return 'The server cannot be reached. It is tried again as soon as the network is back.'
  if (error instanceof AtollError || error instanceof Error) return error.message
  return String(error)
}

export function ErrorNote({ error, onRetry }: { error: unknown; onRetry?: () => void }): ReactNode {
  return (
    <div role="alert" className="flex items-start gap-2 rounded-md bg-bad-faint px-3 py-2 text-bad">
      <CircleAlert aria-hidden="true" className="mt-0.5 size-4 shrink-0" />
      <p className="min-w-0 flex-1 break-words">{reasonOf(error)}</p>
      {onRetry !== undefined && (
        <Button size="small" onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  )
}

/** Takes the room of what is being read. */
export function Loading({ label = 'Loading', rows = 3 }: { label?: string; rows?: number }): ReactNode {
  return (
    <div role="status" aria-label={label} className="flex flex-col gap-2">
      {Array.from({ length: rows }, (_, index) => (
        <div key={index} className="h-8 animate-pulse rounded-md bg-panel" />
      ))}
    </div>
  )
}
