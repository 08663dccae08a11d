import type { ProcessInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { ErrorNote } from '../../../ui/states.tsx'

export interface ClosedTerminal {
  info: ProcessInfo
  label: string
  /** What runs in it; undefined: it is not known. */
  commands: readonly string[] | undefined
  isAsleep: boolean
}
const shownMax = 5

/** Asks before a terminal is closed with what runs in it. */
export function CloseDialog({
  closed,
  onCancel,
  onClose,
}: {
  closed: ClosedTerminal
  onCancel: () => void
  onClose: () => Promise<void>
}): ReactNode {
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const { commands, isAsleep } = closed
  const close = async () => {
    setBusy(true)
    setError(undefined)
    try {
      await onClose()
    } catch (reason) {
      setError(reason)
      setBusy(false)
    }
  }
  return (
    <Dialog title={`Close ${closed.label}?`} isOpen onOpenChange={(isOpen) => !isOpen && onCancel()}>
      <div className="flex flex-col gap-3">
        {isAsleep && <p>The sandbox sleeps, and wakes for this.</p>}
        {commands === undefined ? (
          <p>What runs in this terminal ends with it.</p>
        ) : (
          <>
            <p>This runs in the terminal and ends with it:</p>
            <ul className="flex flex-col gap-1 font-mono text-[13px]">
              {commands.slice(0, shownMax).map((command, index) => (
                <li key={index} className="truncate rounded bg-panel px-2 py-1">
                  {command}
                </li>
              ))}
            </ul>
            {commands.length > shownMax && <p className="text-soft">and {commands.length - shownMax} more</p>}
          </>
        )}
        {error !== undefined && <ErrorNote error={error} />}
        <div className="flex justify-end gap-2">
          <Button onClick={onCancel}>Cancel</Button>
          <Button look="danger" isBusy={isBusy} onClick={() => void close()}>
            Close the terminal
          </Button>
        </div>
      </div>
    </Dialog>
  )
}
