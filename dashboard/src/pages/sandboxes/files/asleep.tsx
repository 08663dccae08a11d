import { useState, type ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { EmptyState, ErrorNote } from '../../../ui/states.tsx'

/** Stands in place of what reading would wake a sandbox for. `action`: `Wake it and read the file`. */
export function Asleep({ action, onWake }: { action: string; onWake: () => Promise<void> }): ReactNode {
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const wake = async () => {
    setBusy(true)
    setError(undefined)
    try {
      await onWake()
    } catch (reason) {
      setError(reason)
      setBusy(false)
    }
  }
  return (
    <EmptyState
      title="The sandbox sleeps"
      actions={
        <Button look="primary" isBusy={isBusy} onClick={() => void wake()}>
          {action}
        </Button>
      }
    >
      Reading its files wakes it.
      {error !== undefined && (
        <div className="mt-3 text-left">
          <ErrorNote error={error} />
        </div>
      )}
    </EmptyState>
  )
}
