import type { ReactNode } from 'react'
import { ErrorNote } from '../../../ui/states.tsx'

interface PagesEndProps {
  hasMore: boolean
  error: unknown
  onRetry: () => void
}

/** The end of a list that is read page by page. */
export function PagesEnd({ hasMore, error, onRetry }: PagesEndProps): ReactNode {
  if (error !== null && error !== undefined)
    return (
      <div className="p-3">
        <ErrorNote error={error} onRetry={onRetry} />
      </div>
    )
  return (
    <p className="px-4 py-3 text-center text-[13px] text-soft" role={hasMore ? 'status' : undefined}>
      {hasMore ? 'Reading more' : 'The moment ends here.'}
    </p>
  )
}
