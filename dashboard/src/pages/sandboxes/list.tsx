import { getRouteApi } from '@tanstack/react-router'
import type { SandboxInfo } from 'atoll-sdk'
import { Plus } from 'lucide-react'
import { useDeferredValue, useMemo, useState, type ReactNode } from 'react'
import type { RowSelectionState } from '@tanstack/react-table'
import { useMay } from '../../account/account.tsx'
import { formatCount } from '../../lib/format.ts'
import { nameOf } from '../../sandboxes/sandbox.ts'
import { useFollowUsage } from '../../sandboxes/usage.ts'
import { useCollection, useSandboxes } from '../../sandboxes/use-sandboxes.ts'
import { sortingOf, sortText } from '../../lib/sorting.ts'
import { Button } from '../../ui/button.tsx'
import { DataTable } from '../../ui/data-table.tsx'
import { Page } from '../../ui/page.tsx'
import { EmptyState, ErrorNote, Loading } from '../../ui/states.tsx'
import { BulkBar } from './bulk-bar.tsx'
import { columnsOf } from './columns.tsx'
import { CreateSandbox } from './create-sandbox.tsx'
import { ListFilter } from './list-filter.tsx'
import type { ListSearch } from './search.ts'

const route = getRouteApi('/shell/sandboxes')

/** All sandboxes of the organisation, live. */
export function SandboxList(): ReactNode {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const may = useMay()
  const collection = useCollection()
  const { rows, isLoading, error } = useSandboxes()
  const [selection, setSelection] = useState<RowSelectionState>({})
  const followUsage = useFollowUsage()
  const text = useDeferredValue(search.text)
  const shown = useMemo(() => rows.filter(filterOf(text, search.state)), [rows, text, search.state])
  const chosen = useMemo(() => shown.filter(({ sandboxID }) => selection[sandboxID] === true), [shown, selection])
  const columns = useMemo(() => columnsOf((id) => collection.refresh(id)), [collection])
  // The filter is typed, so it makes no steps to go back through.
  const change = (next: Partial<Record<keyof ListSearch, unknown>>) =>
    void navigate({ search: (now) => ({ ...now, ...next }) as ListSearch, replace: true })
  const mayWrite = may('sandbox:write')
  return (
    <Page
      title="Sandboxes"
      isFilling
      aside={<Count shown={shown.length} all={rows.length} isLoading={isLoading} />}
      actions={
        mayWrite && (
          <Button look="primary" onClick={() => change({ new: 'sandbox' })}>
            <Plus aria-hidden="true" className="size-4" /> New sandbox
          </Button>
        )
      }
    >
      <ListFilter rows={rows} text={search.text} state={search.state} onChange={change} />
      {error !== undefined && <ErrorNote error={error} onRetry={() => collection.load()} />}
      {mayWrite && <BulkBar chosen={chosen} onClear={() => setSelection({})} />}
      {isLoading && rows.length === 0 ? (
        <Loading label="Loading sandboxes" rows={8} />
      ) : (
        <DataTable
          label="Sandboxes"
          rows={shown}
          columns={columns}
          rowId={({ sandboxID }) => sandboxID}
          onOpen={({ sandboxID }) => void navigate({ to: '/sandboxes/$sandboxId', params: { sandboxId: sandboxID } })}
          sorting={sortingOf(search.sort)}
          onSort={(sorting) => change({ sort: sortText(sorting) })}
          onView={(inView) =>
            followUsage(inView.flatMap(({ status, sandboxID }) => (status === 'running' ? [sandboxID] : [])))
          }
          {...(mayWrite ? { selection, onSelect: setSelection } : {})}
          empty={error === undefined && <Nothing isFiltered={rows.length > 0} mayWrite={mayWrite} onChange={change} />}
        />
      )}
      <CreateSandbox
        isOpen={search.new === 'sandbox' && mayWrite}
        onClose={() => change({ new: undefined, checkpoint: undefined, template: undefined })}
        checkpoint={search.checkpoint}
        template={search.template}
      />
    </Page>
  )
}

function Count({ shown, all, isLoading }: { shown: number; all: number; isLoading: boolean }): ReactNode {
  const count = shown === all ? formatCount(all) : `${formatCount(shown)} of ${formatCount(all)}`
  return (
    <span className="text-soft tabular-nums" role="status">
      {isLoading ? `${count}, more to come` : count}
    </span>
  )
}

function Nothing({
  isFiltered,
  mayWrite,
  onChange,
}: {
  isFiltered: boolean
  mayWrite: boolean
  onChange: (change: ListSearch | { text: undefined; state: undefined }) => void
}): ReactNode {
  if (isFiltered)
    return (
      <EmptyState
        title="No sandbox fits the filter"
        actions={<Button onClick={() => onChange({ text: undefined, state: undefined })}>Show all</Button>}
      />
    )
  return (
    <EmptyState
      title="There is no sandbox yet"
      actions={
        mayWrite && (
          <Button look="primary" onClick={() => onChange({ new: 'sandbox' })}>
            New sandbox
          </Button>
        )
      }
    >
      A sandbox is a machine of your own that starts in tens of milliseconds, sleeps when nobody uses it, and wakes with
      its processes.
    </EmptyState>
  )
}

/** A sandbox fits when each word of the text is part of its name, id, image, a tag or a fact of its metadata. */
function filterOf(text: string | undefined, state: string | undefined): (info: SandboxInfo) => boolean {
  const words = (text ?? '')
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '')
  return (info) => {
    if (state !== undefined && info.status !== state) return false
    if (words.length === 0) return true
    const { sandboxID, templateID, tags, metadata } = info
    const pairs = [...Object.entries(tags), ...Object.entries(metadata)].map(([key, value]) => `${key}=${value}`)
    const known = [nameOf(info), sandboxID, templateID, ...pairs].join('\n').toLowerCase()
    return words.every((word) => known.includes(word))
  }
}
