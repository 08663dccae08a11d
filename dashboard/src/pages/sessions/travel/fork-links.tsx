import { Link } from '@tanstack/react-router'
import type { TurnInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { visible } from '../../../lib/visible.ts'
import { shorten } from '../../../lib/format.ts'
import { isPeek } from './peek.ts'

const nameCharactersMax = 30

/** The sessions that were forked at the end of a turn; nothing when there are none. */
export function ForkLinks({ turn: { forks, forksCut } }: { turn: TurnInfo }): ReactNode {
  const shown = forks.filter(({ name }) => !isPeek(name))
  if (shown.length === 0) return null
  return (
    <ul
      aria-label="Forks of this turn"
      className="flex max-h-14 w-full flex-wrap gap-x-4 gap-y-1 overflow-y-auto text-[13px]"
    >
      <li aria-hidden="true" className="text-soft">
        Forks
      </li>
      {shown.map(({ id, name = id, activity, archivedReason }) => (
        <li key={id} className="text-soft">
          <Link
            to="/sessions/$sessionId"
            params={{ sessionId: id }}
            title={visible(name)}
            className="text-accent underline"
          >
            {visible(shorten(name, nameCharactersMax))}
          </Link>{' '}
          {archivedReason === undefined ? activity : 'archived'}
        </li>
      ))}
      {forksCut && <li className="text-soft">and more</li>}
    </ul>
  )
}
