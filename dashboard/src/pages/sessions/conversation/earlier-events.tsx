import { ArrowUp } from 'lucide-react'
import type { ReactNode } from 'react'
import { formatCount } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'
import { reasonOf } from '../../../ui/states.tsx'
import type { LogView } from '../stream/session-log.ts'

interface EarlierEventsProps {
  isShown: boolean
  /** Events up to this number are not kept by the page. */
  before: number
  view: LogView
  onRead: () => void
}

/** Says above the oldest row that there are older ones, which are not in the page, and reads them. */
export function EarlierEvents({ isShown, before, view, onRead }: EarlierEventsProps): ReactNode {
  if (!isShown || before === 0) return null
  const { isReadingEarlier, earlierError } = view
  return (
    <div className="absolute top-2 left-1/2 z-10 flex max-w-full -translate-x-1/2 items-center gap-2 rounded-md border bg-raised px-2 py-1 text-[13px] shadow-lg">
      <span className="min-w-0 truncate">
        {earlierError === undefined ? `Events 1–${formatCount(before)} are not in the page.` : reasonOf(earlierError)}
      </span>
      <Button size="small" isBusy={isReadingEarlier} onClick={onRead}>
        <ArrowUp aria-hidden="true" className="size-4" /> {isReadingEarlier ? 'Reading' : 'Read more'}
      </Button>
    </div>
  )
}
