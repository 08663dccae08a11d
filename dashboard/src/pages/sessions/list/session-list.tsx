import { getRouteApi } from '@tanstack/react-router'
import { Plus } from 'lucide-react'
import { useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { formatCount } from '../../../lib/format.ts'
import { useEvents, useMissed } from '../../../live/live.tsx'
import { Button } from '../../../ui/button.tsx'
import { DataTable } from '../../../ui/data-table.tsx'
import { whenNearEnd } from '../../../ui/near-end.ts'
import { Page } from '../../../ui/page.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { NewSessionDialog } from '../create/new-session-dialog.tsx'
import type { ListSearch } from '../search.ts'
import { columns } from './columns.tsx'
import { SessionCollection } from './session-collection.ts'
import { SessionFilterBar } from './session-filter-bar.tsx'

const route = getRouteApi('/shell/sessions')
/** The API knows no states: for one of them the list is looked through so far, and further on demand. */
const lookedThrough = 300

/** All sessions of the organisation, live. */
export function SessionList(): ReactNode {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const may = useMay()
  const { search: text, user, state } = search
  const collection = useMemo(() => new SessionCollection({ search: text, userId: user }), [text, user])
  useEffect(() => collection.open(), [collection])
  useEvents((event) => collection.take(event))
  useMissed(() => collection.reload())
  const { rows, isReading, isComplete, error } = useSyncExternalStore(collection.subscribe, collection.view)
  const shown = useMemo(() => rows.filter(({ activity }) => state === undefined || activity === state), [rows, state])
  const [wide, setWide] = useState(lookedThrough)
  const isSparse = state !== undefined && shown.length < 20 && rows.length < wide
  useEffect(() => {
    if (isSparse) collection.readMore()
  }, [collection, isSparse, isReading])
  const change = (next: Partial<Record<keyof ListSearch, unknown>>) =>
    void navigate({ search: (now) => ({ ...now, ...next }) as ListSearch, replace: true })
  const mayWrite = may('session:write')
  const isFiltered = text !== undefined || user !== undefined || state !== undefined
  return (
    <Page
      title="Sessions"
      isFilling
      aside={
        <span className="text-soft tabular-nums" role="status">
          {formatCount(shown.length)}
          {!isComplete && ', more to come'}
        </span>
      }
      actions={
        mayWrite && (
          <Button look="primary" onClick={() => change({ new: 'session' })}>
            <Plus aria-hidden="true" className="size-4" /> New session
          </Button>
        )
      }
    >
      <SessionFilterBar search={search} onChange={change} />
      {error !== undefined && <ErrorNote error={error} onRetry={() => collection.reload()} />}
      {rows.length === 0 && isReading ? (
        <Loading label="Loading sessions" rows={8} />
      ) : (
        <DataTable
          label="Sessions"
          rows={shown}
          columns={columns}
          rowId={({ id }) => id}
          onOpen={({ id }) => void navigate({ to: '/sessions/$sessionId', params: { sessionId: id } })}
          onView={whenNearEnd(shown, () => {
            if (state === undefined || rows.length < wide) collection.readMore()
          })}
          rowHeightPx={48}
          empty={
            error === undefined && (
              <Nothing isFiltered={isFiltered} isReading={isReading} mayWrite={mayWrite} onChange={change} />
            )
          }
        />
      )}
      {state !== undefined && !isComplete && !isReading && rows.length >= wide && (
        <p className="flex items-center gap-2 text-[13px] text-soft">
          The newest {formatCount(rows.length)} sessions were looked through for this state.
          <Button
            size="small"
            onClick={() => {
              setWide(rows.length + lookedThrough)
              collection.readMore()
            }}
          >
            Look further
          </Button>
        </p>
      )}
      {search.new === 'session' && mayWrite && (
        <NewSessionDialog
          checkpoint={search.checkpoint}
          models={[...new Set(rows.map(({ agent }) => agent.model))]}
          onClose={() => change({ new: undefined, checkpoint: undefined })}
        />
      )}
    </Page>
  )
}

interface NothingProps {
  isFiltered: boolean
  isReading: boolean
  mayWrite: boolean
  onChange: (change: Partial<Record<keyof ListSearch, unknown>>) => void
}

function Nothing({ isFiltered, isReading, mayWrite, onChange }: NothingProps): ReactNode {
  if (isReading) return <Loading label="Looking through the sessions" />
  if (isFiltered)
    return (
      <EmptyState
        title="No session fits"
        actions={
          <Button onClick={() => onChange({ search: undefined, user: undefined, state: undefined })}>Show all</Button>
        }
      />
    )
  return (
    <EmptyState
      title="There is no session yet"
      actions={
        mayWrite && (
          <Button look="primary" onClick={() => onChange({ new: 'session' })}>
            New session
          </Button>
        )
      }
    >
      A session is an agent at work on your prompts, in a sandbox of its own. You see what it says, does and makes, and
      can take it back to any turn.
    </EmptyState>
  )
}
