import type { SessionInfo } from 'atoll-sdk'
import { countOf, defined, oneOf, textOf } from '../../lib/search.ts'

export const activities = [
  'starting',
  'working',
  'idle',
  'paused',
  'failed',
  'ended',
] as const satisfies readonly SessionInfo['activity'][]

/** What the list shows. `new` opens the dialog that creates one, `checkpoint` is what the new one begins with. */
export interface ListSearch {
  search?: string
  user?: string
  state?: SessionInfo['activity']
  new?: 'session'
  checkpoint?: string
}

export function listSearchOf({ search, user, state, new: created, checkpoint }: Record<string, unknown>): ListSearch {
  return defined({
    search: textOf(search),
    user: textOf(user),
    state: oneOf(activities, state),
    new: oneOf(['session'] as const, created),
    checkpoint: textOf(checkpoint),
  })
}

export const sessionTabs = ['chat', 'preview', 'changes', 'artifacts', 'usage', 'facts'] as const
export type SessionTab = (typeof sessionTabs)[number]

/** `event` is the moment that a link leads to, `turn` the message whose turn the timeline shows, `tab` what is seen beside the conversation, or in place of it on a narrow window. */
export interface SessionSearch {
  event?: number
  turn?: string
  tab?: SessionTab
}

export function sessionSearchOf({ event, turn, tab }: Record<string, unknown>): SessionSearch {
  return defined({ event: countOf(event), turn: textOf(turn), tab: oneOf(sessionTabs, tab) })
}
