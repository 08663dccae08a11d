import type { RowSelectionState, SortingState } from '@tanstack/react-table'
import { useInfiniteQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import type { ListedCheckpointInfo } from 'atoll-sdk'
import { GitBranch, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { client } from '../../account/client.ts'
import { formatCount } from '../../lib/format.ts'
import { defined } from '../../lib/search.ts'
import { sortingOf, sortText } from '../../lib/sorting.ts'
import { Button } from '../../ui/button.tsx'
import { CommandHint, CommandLines } from '../../ui/commands.tsx'
import { DataTable } from '../../ui/data-table.tsx'
import { Page } from '../../ui/page.tsx'
import { EmptyState, ErrorNote, Loading } from '../../ui/states.tsx'
import { CheckpointDialog } from './checkpoint-dialog.tsx'
import { CheckpointFilter } from './checkpoint-filter.tsx'
import { columns } from './columns.tsx'
import { DeleteCheckpoints } from './delete-checkpoints.tsx'
import { isOfTurn } from './words.ts'

const route = getRouteApi('/shell/checkpoints')
const pageRows = 500

export function CheckpointsPage(): ReactNode {
  const { sandbox, owner, origin, sort, checkpoint: openId } = route.useSearch()
  const navigate = route.useNavigate()
  const mayWrite = useMay()('sandbox:write')
  const [selection, setSelection] = useState<RowSelectionState>({})
  const query = useInfiniteQuery({
    queryKey: ['checkpoints', 'list', { sandbox, owner, origin }],
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ signal, pageParam: cursor }) => {
      const asked = { sandbox, owner, origin, limit: pageRows, cursor }
      const { items, headers } = await client.page<ListedCheckpointInfo[]>('/api/checkpoints', { query: asked, signal })
      return { items, next: headers.get('x-next-cursor') ?? undefined }
    },
    getNextPageParam: ({ next }) => next,
  })
  const rows = query.data?.pages.flatMap(({ items }) => items) ?? []
  const selected = rows.filter(({ id }) => selection[id] === true)
  const deletable = selected.filter((one) => !isOfTurn(one))
  const selecting = { selection, onSelect: setSelection }
  const isFiltered = (sandbox ?? owner ?? origin) !== undefined
  const open = (id: string | undefined) => void navigate({ search: (search) => defined({ ...search, checkpoint: id }) })
  const order = (sorting: SortingState) => {
    const text = sortText(sorting)
    void navigate({
      replace: true,
      search: (search) => defined({ ...search, sort: text === '-made' ? undefined : text }),
    })
  }
  return (
    <Page
      title="Checkpoints"
      isFilling
      lead="Frozen sandboxes, from which any number of others start. They stay when their sandbox is gone."
      actions={
        <>
          {sandbox !== undefined && (
            <Link
              to="/checkpoints/tree/$sandboxId"
              params={{ sandboxId: sandbox }}
              className="inline-flex h-8 items-center gap-1.5 rounded-md border bg-raised px-3 font-medium hover:border-accent"
            >
              <GitBranch aria-hidden="true" className="size-4" /> Tree
            </Link>
          )}
          <CommandHint
            commands={{
              cli: `atoll checkpoint ls${sandbox === undefined ? '' : ` ${sandbox}`}${origin === 'turn' ? ' --origin turn' : ''}`,
              curl: { path: `/api/checkpoints${listQuery({ sandbox, owner, origin })}` },
              sdk: `for await (const checkpoint of client.checkpoints(${optionsText({ sandbox, owner, origin })})) console.log(checkpoint.id)`,
            }}
          />
        </>
      }
    >
      <div className="flex flex-wrap items-end gap-2">
        <CheckpointFilter />
        {selected.length > 0 && (
          <div className="ml-auto flex items-center gap-2">
            <span className="text-soft">{formatCount(selected.length)} selected</span>
            <DeleteCheckpoints
              checkpoints={deletable}
              onDeleted={() => setSelection({})}
              trigger={
                <Button look="danger">
                  <Trash2 aria-hidden="true" className="size-4" /> Delete
                </Button>
              }
            />
            {deletable.length < selected.length && (
              <span className="text-soft">Those of turns go with their session.</span>
            )}
          </div>
        )}
      </div>
      {query.isError && <ErrorNote error={query.error} onRetry={() => void query.refetch()} />}
      {query.isPending && <Loading label="Loading the checkpoints" rows={6} />}
      {query.data !== undefined && (
        <DataTable
          label="Checkpoints"
          rows={rows}
          columns={columns}
          rowId={({ id }) => id}
          sorting={sortingOf(sort, [{ id: 'made', desc: true }])}
          onSort={order}
          onOpen={({ id }) => open(id)}
          {...(mayWrite ? selecting : undefined)}
          empty={isFiltered ? <NothingFound /> : <NoCheckpoints />}
        />
      )}
      {query.hasNextPage && (
        <div className="flex items-center gap-3 text-soft">
          These are the newest {formatCount(rows.length)}. There are more.
          <Button size="small" isBusy={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
            Read {formatCount(pageRows)} more
          </Button>
        </div>
      )}
      {openId !== undefined && (
        <CheckpointDialog
          key={openId}
          id={openId}
          known={rows.find(({ id }) => id === openId)}
          onClose={() => open(undefined)}
        />
      )}
    </Page>
  )
}

type Filter = Record<'sandbox' | 'owner' | 'origin', string | undefined>

function listQuery(filter: Filter): string {
  const given = Object.entries(filter).filter((entry): entry is [string, string] => entry[1] !== undefined)
  return given.length === 0 ? '' : `?${new URLSearchParams(given).toString()}`
}

function optionsText(filter: Filter): string {
  const text = JSON.stringify(filter)
  return text === '{}' ? '' : text
}

function NothingFound(): ReactNode {
  return (
    <EmptyState
      title="No checkpoint fits"
      actions={
        <Link to="/checkpoints" className="text-accent underline">
          Show all
        </Link>
      }
    >
      None is of this sandbox, owner and origin.
    </EmptyState>
  )
}

function NoCheckpoints(): ReactNode {
  return (
    <EmptyState title="No checkpoints yet">
      <p className="mb-3">
        A checkpoint keeps the disk of a sandbox and, if you like, its memory and processes. Make one on the page of a
        sandbox, or by a command.
      </p>
      <div className="text-left">
        <CommandLines
          commands={{
            cli: 'atoll checkpoint web --name prepared',
            curl: { path: '/api/sandboxes/web/checkpoints', json: { name: 'prepared' } },
            sdk: "const checkpoint = await sandbox.checkpoint({ name: 'prepared' })",
          }}
        />
      </div>
    </EmptyState>
  )
}
