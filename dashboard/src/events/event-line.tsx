import { Link } from '@tanstack/react-router'
import type { EventInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { TimeAgo } from '../ui/time.tsx'
import { nounOf, phraseOf } from './sentence.ts'

/** Pages of one thing, by the beginning of its id. */
const pages: readonly (readonly [prefix: string, path: string])[] = [
  ['sb-', '/sandboxes/'],
  ['session_', '/sessions/'],
]

/** One event of the log as a sentence, with its time. */
export function EventLine({ event }: { event: EventInfo }): ReactNode {
  // A checkpoint or a preview of a sandbox is its news, not its name.
  const subject = event.type.startsWith('sandbox.') ? (event.sandboxId ?? event.subject) : event.subject
  const path = pages.find(([prefix]) => subject.startsWith(prefix))?.[1]
  const isWhole =
    event.type.startsWith('usage.') || event.type.startsWith('audit.') || event.type.startsWith('organisation.')
  return (
    <span className="flex min-w-0 items-baseline gap-3">
      <span className="min-w-0 flex-1 [overflow-wrap:anywhere]">
        {nounOf(event)}{' '}
        {!isWhole && path !== undefined && (
          <Link
            to={`${path}${encodeURIComponent(subject)}`}
            className="font-mono text-[13px] text-accent hover:underline"
          >
            {subject}
          </Link>
        )}
        {!isWhole && path === undefined && event.data['name'] === undefined && (
          <span className="font-mono text-[13px]">{subject}</span>
        )}{' '}
        <bdi>{phraseOf(event)}</bdi>
      </span>
      <span className="shrink-0 text-[13px] text-soft">
        <TimeAgo time={event.ts} />
      </span>
    </span>
  )
}
