import { Link } from '@tanstack/react-router'
import type { RewoundInfo, SessionInfo, TurnInfo } from 'atoll-sdk'
import { GitFork, X } from 'lucide-react'
import { useEffect, useState, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { useMedia } from '../../../lib/media.ts'
import { IconButton } from '../../../ui/button.tsx'
import { Tabs } from '../../../ui/tabs.tsx'
import { ForkDialog } from './fork-dialog.tsx'
import { ForkLinks } from './fork-links.tsx'
import { Peek } from './peek.ts'
import { PeekView } from './peek-view.tsx'
import { RewindDialog } from './rewind-dialog.tsx'
import { ShareDialog } from './share-dialog.tsx'
import { SinceChanges } from './since-changes.tsx'
import { TurnChanges } from './turn-changes.tsx'
import { TurnFacts } from './turn-facts.tsx'
import { TurnTranscript } from './turn-transcript.tsx'
import { sessionOf } from '../use-session.ts'

interface TurnPanelProps {
  session: SessionInfo
  turn: TurnInfo
  /** All that are read, oldest first. */
  turns: readonly TurnInfo[]
  /** Its number. */
  place: number
  onRewound: (rewound: RewoundInfo) => void
  onRefresh: () => void
  onClose: () => void
}

const linkLook =
  'inline-flex h-7 items-center gap-1 rounded-md border bg-raised px-2 text-[13px] font-medium whitespace-nowrap hover:border-accent'

/** The end of one turn: what was said by then, what it has changed, and what can be begun from there. */
export function TurnPanel(props: TurnPanelProps): ReactNode {
  const { session, turn, turns, place, onRewound, onRefresh, onClose } = props
  const may = useMay()
  const isWide = useMedia('(min-width: 64rem)')
  const [tab, setTab] = useState('turn')
  const [peek, setPeek] = useState<Peek>()
  // The copy is of one turn, and ends with the panel.
  useEffect(() => () => setPeek(undefined), [turn.messageId])
  useEffect(() => () => peek?.end(), [peek])
  const isEnded = turn.endedAt !== null
  const transcript = {
    value: 'transcript',
    label: 'Transcript',
    content: <TurnTranscript {...{ session, turn, turns }} />,
  }
  const tabs = [
    {
      value: 'turn',
      label: 'Changed in this turn',
      content: <TurnChanges {...{ session, turn, turns, onRefresh }} />,
    },
    { value: 'since', label: 'Changed since', content: <SinceChanges {...{ session, turn }} /> },
    {
      value: 'running',
      label: 'Page of then',
      content: (
        <PeekView
          turn={turn}
          peek={peek}
          onBegin={() => setPeek(new Peek(sessionOf(session), turn.messageId))}
          onEnd={() => setPeek(undefined)}
        />
      ),
    },
  ]
  const shownTabs = tabs.filter(
    ({ value }) => value === 'turn' || (isEnded && (value === 'since' || may('session:write'))),
  )
  return (
    <div className="flex min-h-0 flex-1 flex-col border-t">
      <header className="flex flex-wrap items-center gap-x-3 gap-y-2 border-b px-3 py-2">
        <TurnFacts turn={turn} place={place} />
        <div className="ml-auto flex flex-wrap items-center gap-2">
          {isEnded && may('session:write') && (
            <>
              <RewindDialog {...{ session, turn, turns, place, onRewound }} />
              <ForkDialog session={session} turn={turn} place={place} />
              <Link
                to="/sessions/$sessionId/branch"
                params={{ sessionId: session.id }}
                search={{ at: turn.messageId }}
                className={linkLook}
              >
                <GitFork aria-hidden="true" className="size-4" /> Branch
              </Link>
              {turn.lastEvent !== null && <ShareDialog session={session} eventId={turn.lastEvent} />}
            </>
          )}
          <IconButton label="Back to the present" icon={<X className="size-4" />} onClick={onClose} />
        </div>
        <ForkLinks turn={turn} />
      </header>
      {isWide ? (
        <div className="grid min-h-0 flex-1 grid-cols-[minmax(0,2fr)_minmax(0,3fr)] divide-x">
          <section aria-label="Transcript to this turn" className="flex min-h-0 flex-col">
            {transcript.content}
          </section>
          <div className="flex min-h-0 flex-col p-3">
            <Tabs
              label="What to see of this turn"
              tabs={shownTabs}
              value={tab === 'transcript' ? 'turn' : tab}
              onChange={setTab}
            />
          </div>
        </div>
      ) : (
        <div className="flex min-h-0 flex-1 flex-col p-3">
          <Tabs label="What to see of this turn" tabs={[transcript, ...shownTabs]} value={tab} onChange={setTab} />
        </div>
      )}
    </div>
  )
}
