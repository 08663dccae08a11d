import { WifiOff } from 'lucide-react'
import type { ReactNode } from 'react'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import type { LogView } from '../stream/session-log.ts'

/** Whether what is shown is the present, when it is not. */
export function LogNotice({
  view: { state, error },
  isEmpty,
  onRetry,
}: {
  view: LogView
  /** No row is here yet. */
  isEmpty: boolean
  onRetry: () => void
}): ReactNode {
  if (state === 'failed') return <ErrorNote error={error} onRetry={onRetry} />
  return (
    <>
      <div role="status">
        {state === 'broken' && (
          <p className="mb-2 flex items-center gap-2 rounded-md bg-warn-faint px-3 py-1.5 text-[13px] text-warn">
            <WifiOff aria-hidden="true" className="size-4 shrink-0" />
            The connection is cut. What is missed comes by itself when the server is back.
          </p>
        )}
        {state === 'held' && (
          <p className="mb-2 rounded-md bg-panel px-3 py-1.5 text-[13px] text-soft">
            Newer events are not in the page, to spare its memory. They come when you scroll down to them.
          </p>
        )}
      </div>
      {state === 'reading' && isEmpty && <Loading label="Reading the conversation" />}
    </>
  )
}
