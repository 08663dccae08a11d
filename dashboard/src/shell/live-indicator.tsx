import type { ReactNode } from 'react'
import { useAccount } from '../account/account.tsx'
import { useLiveState } from '../live/live.tsx'
import type { LiveState } from '../live/organisation-log.ts'
import { cx } from '../ui/cx.ts'

const states: Record<LiveState, { text: string; look: string; title: string }> = {
  connecting: { text: 'Connecting', look: 'text-soft', title: 'The page is about to follow what happens.' },
  live: { text: 'Live', look: 'text-good', title: 'The page shows what happens as it happens.' },
  broken: {
    text: 'Reconnecting',
    look: 'text-warn',
    title: 'The connection was cut. What is shown may be old; it catches up by itself.',
  },
  over: { text: 'Signed out', look: 'text-bad', title: 'The key or the sign-in has ended.' },
  refused: {
    text: 'Not live',
    look: 'text-soft',
    title: 'This key has no scope “events”: reload the page to see what has changed.',
  },
}

/** Whether what the page shows is the present. */
export function LiveIndicator(): ReactNode {
  const state = useLiveState()
  const account = useAccount()
  // It has no log to follow.
  if (account?.isOperator === true) return null
  const { text, look, title } = states[state]
  return (
    <span
      role="status"
      title={title}
      data-live={state}
      className={cx('inline-flex items-center gap-1.5 text-xs', look)}
    >
      <span
        aria-hidden="true"
        className={cx('size-2 rounded-full bg-current', state === 'broken' && 'animate-pulse')}
      />
      {text}
    </span>
  )
}
