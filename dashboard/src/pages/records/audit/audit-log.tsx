import type { ReactNode } from 'react'
import { useMemo } from 'react'
import { formatCount } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'
import { DataTable } from '../../../ui/data-table.tsx'
import { whenNearEnd } from '../../../ui/near-end.ts'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { useActorNames } from './actors.ts'
import { AuditFilterBar } from './audit-filter-bar.tsx'
import { columnsOf } from './columns.tsx'
import { type AuditFilters, type AuditPlace, entriesMax, useAuditEntries } from './entries.ts'
import { EntryDialog } from './entry-dialog.tsx'

export interface AuditSearch extends AuditFilters {
  /** Number of the entry that is open. */
  entry?: number
}

/** The entries of one audit with its filters, which the address has. */
export function AuditLog({
  place,
  search,
  onSearch,
}: {
  place: AuditPlace
  search: AuditSearch
  onSearch: (search: AuditSearch) => void
}): ReactNode {
  const { entry, ...filters } = search
  const found = useAuditEntries(place, filters)
  const names = useActorNames()
  const columns = useMemo(() => columnsOf(names), [names])
  const hasFilter = Object.keys(filters).length > 0
  const last = found.entries.at(-1)
  return (
    <>
      <AuditFilterBar
        key={JSON.stringify(filters)}
        filters={filters}
        names={names}
        operations={[...new Set(found.entries.map(({ operation }) => operation))].toSorted()}
        onChange={onSearch}
      />
      <div className="flex flex-wrap items-center gap-2">
        <Button size="small" look={found.newCount > 0 ? 'primary' : 'plain'} onClick={found.readNewest}>
          {found.newCount === 0
            ? 'Look for new entries'
            : `${formatCount(found.newCount)} new ${found.newCount === 1 ? 'entry' : 'entries'}`}
        </Button>
        <span role="status" className="text-[13px] text-soft">
          {found.newCount > 0 && hasFilter && 'Not all of them need match the filter. '}
          {found.isLoadingMore && 'Loading older entries …'}
        </span>
      </div>
      {found.isPending ? (
        <Loading label="Loading the audit" rows={8} />
      ) : found.error !== null && found.entries.length === 0 ? (
        <ErrorNote error={found.error} onRetry={found.retry} />
      ) : found.entries.length === 0 ? (
        <EmptyState
          title={hasFilter ? 'No entry matches' : 'No entries yet'}
          actions={hasFilter && <Button onClick={() => onSearch({})}>Show all</Button>}
        >
          {hasFilter
            ? 'Names and ids must be written in full.'
            : 'Each call that changes something or acts inside of a sandbox becomes an entry.'}
        </EmptyState>
      ) : (
        <DataTable
          label="Entries of the audit, newest first"
          rows={found.entries}
          columns={columns}
          rowId={({ number }) => String(number)}
          rowHeightPx={40}
          onOpen={({ number }) => onSearch({ ...filters, entry: number })}
          onView={whenNearEnd(found.entries, found.loadMore)}
        />
      )}
      {found.error !== null && found.entries.length > 0 && <ErrorNote error={found.error} onRetry={found.loadMore} />}
      {found.isCut && last !== undefined && (
        <p className="flex flex-wrap items-center gap-2 text-[13px] text-soft">
          The newest {formatCount(entriesMax)} entries are listed.
          <Button size="small" onClick={() => onSearch({ ...filters, to: last.ts })}>
            Show older ones
          </Button>
        </p>
      )}
      {entry !== undefined && (
        <EntryDialog
          place={place}
          number={entry}
          loaded={found.entries.find(({ number }) => number === entry)}
          names={names}
          onFilter={onSearch}
          onClose={() => onSearch(filters)}
        />
      )}
    </>
  )
}
