import { useInfiniteQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { type CapsuleView, NotFoundError } from 'atoll-sdk'
import { useEffect, useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import mark from '../../../atoll.svg'
import { Badge } from '../../../ui/badge.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { Tabs } from '../../../ui/tabs.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { CapsuleFork } from './capsule-fork.tsx'
import { CapsuleStream } from './capsule-stream.tsx'
import { MessageList } from './message-list.tsx'
import { PagesEnd } from './pages-end.tsx'

const messagesOfPage = 50

/** A shared moment of a session, read by whoever has the link. It needs no key, and asks nothing of the server but what the link opens. */
export function CapsulePage(): ReactNode {
  const { token } = useParams({ from: '/capsules/$token' })
  const [tab, setTab] = useState('said')
  const path = `/v1/capsules/${encodeURIComponent(token)}`
  const query = useInfiniteQuery({
    queryKey: ['capsule', token],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam: cursor, signal }) =>
      client.json<CapsuleView>('GET', path, { query: { cursor, limit: messagesOfPage }, signal }),
    getNextPageParam: ({ nextCursor }) => nextCursor ?? undefined,
  })
  const { hasNextPage, isFetching, fetchNextPage } = query
  const view = query.data?.pages[0]
  const title = view?.session.title ?? 'A shared moment'
  useEffect(() => {
    document.title = `${title} · Atoll`
  }, [title])
  const messages = query.data?.pages.flatMap((page) => page.messages) ?? []
  const readNext = () => {
    if (hasNextPage && !isFetching) void fetchNextPage()
  }
  // A page may hold no message and still have a next one.
  const isEmptyYet = hasNextPage && messages.length === 0
  useEffect(() => {
    if (isEmptyYet && !isFetching) void fetchNextPage()
  }, [isEmptyYet, isFetching, fetchNextPage])
  const said = (
    <div className="flex min-h-0 flex-col overflow-hidden rounded-lg border bg-raised">
      <MessageList
        label="What was said"
        messages={messages}
        onNearEnd={readNext}
        footer={<PagesEnd hasMore={hasNextPage} error={query.error} onRetry={readNext} />}
      />
    </div>
  )
  return (
    <div className="flex h-full flex-col">
      <header className="flex flex-wrap items-center gap-x-4 gap-y-2 border-b bg-panel px-4 py-3 sm:px-6">
        <img src={mark} alt="Atoll" className="size-6" />
        <div className="min-w-0 flex-1 basis-64">
          <h1 className="text-lg font-semibold break-words">{title}</h1>
          {view !== undefined && <About view={view} />}
        </div>
        {view?.scope === 'fork' && <CapsuleFork token={token} />}
      </header>
      <main className="mx-auto flex min-h-0 w-full max-w-4xl flex-1 flex-col p-4 sm:p-6">
        {view !== undefined ? (
          <Tabs
            label="What to read of the moment"
            value={tab}
            onChange={setTab}
            tabs={[
              { value: 'said', label: 'Conversation', content: said },
              {
                value: 'done',
                label: 'What was done',
                content: <CapsuleStream path={path} token={token} messages={messages} />,
              },
            ]}
          />
        ) : query.error instanceof NotFoundError ? (
          <EmptyState title="There is nothing under this link">
            It is wrong, its time is over, or whoever shared it has taken it back. Ask them for a new one.
          </EmptyState>
        ) : query.isError ? (
          <ErrorNote error={query.error} onRetry={() => void query.refetch()} />
        ) : (
          <Loading label="Reading the moment" rows={6} />
        )}
      </main>
    </div>
  )
}

function About({ view: { session, event, scope, expiresAt } }: { view: CapsuleView }): ReactNode {
  return (
    <p className="flex flex-wrap items-center gap-x-3 gap-y-1 text-[13px] text-soft">
      <Badge tone="accent">shared moment</Badge>
      {scope === 'read' && <Badge>read only</Badge>}
      <span>
        of a session begun <TimeAgo time={session.createdAt} />
      </span>
      <span>up to event {event}</span>
      <span>
        the link ends <TimeAgo time={expiresAt} />
      </span>
    </p>
  )
}
