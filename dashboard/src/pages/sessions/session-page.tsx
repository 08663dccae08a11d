import { getRouteApi, Navigate } from '@tanstack/react-router'
import type { SessionInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { useMedia } from '../../lib/media.ts'
import { Badge, StateBadge } from '../../ui/badge.tsx'
import { Page } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { AsideTabs } from './aside/aside-tabs.tsx'
import { ComposerProvider } from './composer-context.tsx'
import { Composer } from './composer/composer.tsx'
import { Conversation } from './conversation/conversation.tsx'
import { currentOf, pendingOf } from './conversation/view-items.ts'
import { SessionActions } from './session-actions.tsx'
import { useSessionLog } from './stream/use-session-log.ts'
import { TimelineBar } from './travel/timeline-bar.tsx'
import { useTimeline } from './travel/use-timeline.ts'
import { titleOf, useSession } from './use-session.ts'

const route = getRouteApi('/shell/sessions/$sessionId')

/** One session: its conversation as it is written, and beside it what the agent makes. */
export function SessionPage(): ReactNode {
  const { sessionId } = route.useParams()
  const search = route.useSearch()
  const { data: session, error, refetch } = useSession(sessionId)
  if (session === undefined) {
    return (
      <Page title="Session">
        {error === null ? (
          <Loading label="Reading the session" rows={6} />
        ) : (
          <ErrorNote error={error} onRetry={() => void refetch()} />
        )}
      </Page>
    )
  }
  // A name serves only while the session runs; what the log says has its id.
  if (session.id !== sessionId)
    return <Navigate to="/sessions/$sessionId" params={{ sessionId: session.id }} search={search} replace />
  return (
    <ComposerProvider key={session.id} sessionId={session.id}>
      <SessionView session={session} />
    </ComposerProvider>
  )
}

function SessionView({ session }: { session: SessionInfo }): ReactNode {
  const { event, tab, turn } = route.useSearch()
  const isWide = useMedia('(min-width: 64rem)')
  const { turns } = useTimeline(session)
  const { log, view } = useSessionLog(session, event)
  const { transcript } = log
  const [pending] = pendingOf(session, transcript, view.state)
  const current = transcript.turn === undefined ? pending?.message : currentOf(session, transcript)
  const isShown = (messageId: string) => messageId === current?.id || transcript.ended.has(messageId)
  const talk = (
    <section aria-label="Conversation and message" className="flex min-h-0 min-w-0 flex-1 flex-col gap-2">
      <Conversation session={session} turns={turns} log={log} view={view} event={event} />
      <Composer session={session} isShown={isShown} />
    </section>
  )
  const aside = <AsideTabs session={session} turns={turns} view={view} tab={tab} talk={isWide ? undefined : talk} />
  return (
    <Page
      title={titleOf(session)}
      isFilling
      aside={
        <>
          <StateBadge state={session.activity} />
          {session.archivedReason !== undefined && <Badge title={session.archivedReason}>archived</Badge>}
        </>
      }
      actions={<SessionActions session={session} />}
    >
      <TimelineBar session={session} />
      {/* A turn that is looked at takes the room of the present. */}
      {turn === undefined && (
        <div className="flex min-h-[26rem] flex-1 gap-5">
          {isWide && talk}
          <div className="flex min-h-0 min-w-0 flex-1 flex-col">{aside}</div>
        </div>
      )}
    </Page>
  )
}
