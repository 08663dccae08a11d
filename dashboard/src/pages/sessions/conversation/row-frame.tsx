import { use, type ReactNode } from 'react'
import { useToast } from '../../../ui/toasts.tsx'
import { ConversationContext } from './conversation-context.ts'

/** The room of a row, with the number of its event, which copies a link to this moment. */
export function RowFrame({ event, children }: { event: number; children: ReactNode }): ReactNode {
  const { sessionId } = use(ConversationContext)
  const toast = useToast()
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(`${location.origin}/sessions/${sessionId}?event=${event}`)
      toast({ text: `The link to event ${event} is copied.` })
    } catch {
      toast({ tone: 'bad', text: 'The browser does not let this page copy.' })
    }
  }
  return (
    <div className="group/row relative pr-12">
      {children}
      {event > 0 && (
        <button
          type="button"
          title="Copy a link to this moment"
          aria-label={`Copy a link to event ${event}`}
          onClick={() => void copy()}
          className="absolute top-0 right-0 h-6 rounded bg-paper px-1 text-xs text-soft tabular-nums opacity-0 group-hover/row:opacity-100 hover:bg-panel focus-visible:opacity-100 max-md:opacity-100"
        >
          #{event}
        </button>
      )}
    </div>
  )
}
