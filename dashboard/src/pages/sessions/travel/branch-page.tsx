import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { RewoundInfo, SessionInfo, TurnInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { visible } from '../../../lib/visible.ts'
import { shorten } from '../../../lib/format.ts'
import { Page, Panel } from '../../../ui/page.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { titleOf, useSession } from '../use-session.ts'
import { isPeek } from './peek.ts'
import { UndoButton } from './undo-button.tsx'
import { useTimeline } from './use-timeline.ts'
import { VariantForms } from './variant-forms.tsx'
import { Variants } from './variants.tsx'

/** Several forks of one point side by side, of which one is kept. */
export function BranchPage(): ReactNode {
  const { sessionId } = useParams({ from: '/shell/sessions/$sessionId/branch' })
  const session = useSession(sessionId)
  if (session.data !== undefined) return <Branch session={session.data} />
  return (
    <Page title="Branch">
      {session.isError ? (
        <ErrorNote error={session.error} onRetry={() => void session.refetch()} />
      ) : (
        <Loading label="Reading the session" rows={6} />
      )}
    </Page>
  )
}

function Branch({ session }: { session: SessionInfo }): ReactNode {
  const { at, fork } = useSearch({ from: '/shell/sessions/$sessionId/branch' })
  const navigate = useNavigate({ from: '/sessions/$sessionId/branch' })
  const may = useMay()
  const timeline = useTimeline(session)
  const { turns, hasOlder, readOlder } = timeline
  const [adopted, setAdopted] = useState<string>()
  const turn = at === undefined ? turns.findLast(({ left }) => !left) : turns.find(({ messageId }) => messageId === at)
  // Those that have ended keep their numbers.
  const made = (turn?.forks ?? []).filter(({ name }) => !isPeek(name))
  const forks = made
    .map((one, index) => ({ fork: one, label: `Variant ${index + 1}` }))
    .filter((variant) => variant.fork.status === 'running')
  const title = titleOf(session)
  const onUndone = (_rewound: RewoundInfo) => {
    setAdopted(undefined)
    timeline.refresh()
  }
  return (
    <Page
      title={`Branch ${shorten(title, 60)}`}
      lead={
        <>
          Each variant is a session of its own that goes on from{' '}
          {turn === undefined ? (
            'the same point'
          ) : (
            <Point turn={turn} place={timeline.places.get(turn.messageId) ?? 0} at={at} />
          )}
          . One of them can be kept: <SessionLink session={session} /> then stands where that one does.
        </>
      }
    >
      {timeline.error !== null && <ErrorNote error={timeline.error} onRetry={timeline.refresh} />}
      {adopted !== undefined && (
        <div role="status" className="flex flex-wrap items-center gap-3 rounded-md bg-good-faint px-3 py-2 text-good">
          <p className="min-w-0 flex-1">
            <SessionLink session={session} /> stands where {visible(adopted)} stood. The other forks are archived: a
            message wakes one again.
          </p>
          <UndoButton session={session} onDone={onUndone} label="Undo" />
        </div>
      )}
      {at !== undefined && turn === undefined && !timeline.isPending && (
        <EmptyState
          title="The session has no such turn"
          actions={
            hasOlder ? (
              <button type="button" className="text-accent underline" onClick={readOlder}>
                Look through older turns
              </button>
            ) : undefined
          }
        >
          It may be a turn of another session, or older than those that are listed.
        </EmptyState>
      )}
      {forks.length > 0 && turn !== undefined && (
        <Variants
          session={session}
          turn={turn}
          forks={forks}
          shown={fork}
          onShow={(id) => void navigate({ search: { ...(at === undefined ? {} : { at }), fork: id }, replace: true })}
          onAdopted={setAdopted}
          onChanged={timeline.refresh}
        />
      )}
      {may('session:write') && (at === undefined || turn !== undefined) && (
        <Panel title={forks.length === 0 ? 'Variants' : 'More variants'}>
          <VariantForms session={session} at={at} firstNumber={made.length + 1} onStarted={timeline.refresh} />
        </Panel>
      )}
    </Page>
  )
}

function SessionLink({ session }: { session: SessionInfo }): ReactNode {
  return (
    <Link to="/sessions/$sessionId" params={{ sessionId: session.id }} className="text-accent underline">
      {visible(shorten(titleOf(session), 60))}
    </Link>
  )
}

function Point({ turn, place, at }: { turn: TurnInfo; place: number; at: string | undefined }): ReactNode {
  const message = visible(shorten(turn.message, 80))
  return at === undefined ? `now, after turn ${place} (“${message}”)` : `the end of turn ${place} (“${message}”)`
}
