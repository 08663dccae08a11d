import type { ReactNode } from 'react'
import { cx } from '../../../ui/cx.ts'
import type { ConnectionState } from './connection.ts'

interface StateLineProps {
  state: ConnectionState
  /** The address of the link under the pointer. */
  link: string | undefined
  hasSkipped: boolean
}

/** One line below a screen: what is wrong, where a link leads, how to leave. */
export function StateLine({ state, link, hasSkipped }: StateLineProps): ReactNode {
  const note = noteOf(state)
  return (
    <div className="flex h-6 shrink-0 items-center gap-3 overflow-hidden border-t px-3 text-xs whitespace-nowrap text-soft">
      <p role="status" className={cx('min-w-0 truncate', note?.isBad === true && 'text-bad')}>
        {note?.text}
        {note === undefined && hasSkipped && 'Output came faster than it is shown, so a part was passed over.'}
      </p>
      {link !== undefined && note === undefined && <p className="min-w-0 truncate font-mono">{link}</p>}
      <p className="ml-auto hidden shrink-0 lg:block">Ctrl Shift ↑ leaves the terminal</p>
    </div>
  )
}

function noteOf(state: ConnectionState): { text: string; isBad?: boolean } | undefined {
  switch (state.type) {
    case 'connecting':
      return { text: 'Connecting…' }
    case 'broken':
      return { text: `Not connected, trying again: ${state.reason}`, isBad: true }
    case 'ended':
      return { text: `Ended with exit code ${state.exitCode}`, isBad: state.exitCode !== 0 }
    case 'gone':
      return { text: state.reason, isBad: true }
    case 'attached':
    case 'asleep':
    case 'waking':
      return undefined
  }
}
