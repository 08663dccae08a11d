import type { ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import type { ConnectionState } from './connection.ts'

/** Lies over the screen of a terminal whose sandbox sleeps. */
export function SleepNote({ state, onWake }: { state: ConnectionState; onWake: () => void }): ReactNode {
  const isWaking = state.type === 'waking'
  return (
    <div role="status" className="absolute inset-0 flex items-center justify-center p-4">
      <div className="flex max-w-sm flex-col items-center gap-3 rounded-lg border bg-raised p-4 text-center shadow-lg">
        <p className="font-semibold">{isWaking ? 'Waking the sandbox' : 'Asleep, press a key to wake it'}</p>
        <p className="text-soft">What runs in this terminal is kept and goes on where it was.</p>
        {state.type === 'asleep' && state.reason !== undefined && <p className="text-bad">{state.reason}</p>}
        <Button look="primary" isBusy={isWaking} onClick={onWake}>
          Wake it
        </Button>
      </div>
    </div>
  )
}
