import { Link } from '@tanstack/react-router'
import type { RewoundInfo, SessionInfo } from 'atoll-sdk'
import { GitFork, History } from 'lucide-react'
import { useEffect, useRef, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { Button } from '../../../ui/button.tsx'
import { cx } from '../../../ui/cx.ts'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { endLeftPeeks } from './peek.ts'
import { TurnPanel } from './turn-panel.tsx'
import { TurnTrack } from './turn-track.tsx'
import { UndoButton } from './undo-button.tsx'
import { useRewound } from './use-rewound.ts'
import { useTimeline } from './use-timeline.ts'
import { useTurnChoice } from './use-turn-choice.ts'

/**
 * The turns of a session as a slider. The one that is chosen (`?turn=`) opens below it, with what can be done there, and takes the room that is left of
 * the page.
 */
export function TimelineBar({ session }: { session: SessionInfo }): ReactNode {
  const timeline = useTimeline(session)
  const { turns, places, hasOlder, isReadingOlder, readOlder, undoCheckpointId } = timeline
  const { messageId, choose } = useTurnChoice()
  const may = useMay()
  const takeRewound = useRewound(session)
  const onRewound = (rewound: RewoundInfo) => {
    takeRewound(rewound)
    choose(undefined)
  }
  const chosen = turns.find((turn) => turn.messageId === messageId)
  const isMissing = messageId !== undefined && chosen === undefined && !timeline.isPending && !isReadingOlder
  const isLost = isMissing && !hasOlder
  // A link may lead to an old turn.
  useEffect(() => {
    if (isMissing && hasOlder) readOlder()
  }, [isMissing, hasOlder, readOlder])
  const isSwept = useRef(false)
  useEffect(() => {
    if (isSwept.current || turns.length === 0 || !may('session:write')) return
    isSwept.current = true
    void endLeftPeeks(turns.flatMap(({ forks }) => forks))
  }, [turns, may])
  if (timeline.error !== null && turns.length === 0)
    return <ErrorNote error={timeline.error} onRetry={timeline.refresh} />
  if (turns.length === 0 && messageId === undefined) return null
  return (
    <section
      aria-label="Timeline"
      className={cx(
        'flex flex-col overflow-hidden rounded-lg border bg-raised',
        chosen !== undefined && 'min-h-[30rem] flex-1',
      )}
    >
      {turns.length > 0 && (
        <div className="flex flex-wrap items-center gap-x-3 gap-y-1 px-3 py-1.5 sm:flex-nowrap">
          <History aria-hidden="true" className="size-4 shrink-0 text-soft max-sm:hidden" />
          {hasOlder && (
            <Button size="small" look="quiet" isBusy={isReadingOlder} onClick={readOlder}>
              Older
            </Button>
          )}
          <div className="min-w-0 flex-1 max-sm:basis-full">
            <TurnTrack
              places={places}
              turns={turns}
              messageId={messageId}
              canUndo={undoCheckpointId !== null}
              onChoose={choose}
            />
          </div>
          {may('session:write') && (
            <span className="flex gap-2">
              {undoCheckpointId !== null && <UndoButton session={session} onDone={onRewound} />}
              {messageId === undefined && (
                <Link
                  to="/sessions/$sessionId/branch"
                  params={{ sessionId: session.id }}
                  className="inline-flex h-7 items-center gap-1 rounded-md border bg-raised px-2 text-[13px] font-medium hover:border-accent"
                >
                  <GitFork aria-hidden="true" className="size-4" /> Branch
                </Link>
              )}
            </span>
          )}
        </div>
      )}
      {messageId !== undefined && chosen === undefined && !isLost && (
        <div className="p-3">
          <Loading label="Reading the turn" rows={6} />
        </div>
      )}
      {chosen !== undefined && (
        <TurnPanel
          session={session}
          turn={chosen}
          turns={turns}
          place={places.get(chosen.messageId) ?? 0}
          onRewound={onRewound}
          onRefresh={timeline.refresh}
          onClose={() => choose(undefined)}
        />
      )}
      {isLost && (
        <div className="border-t p-3">
          <EmptyState
            title="The session has no such turn"
            actions={<Button onClick={() => choose(undefined)}>Back to the present</Button>}
          >
            The link leads to a turn of another session, or to one that is older than those that are listed.
          </EmptyState>
        </div>
      )}
    </section>
  )
}
