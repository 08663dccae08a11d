import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { Plus } from 'lucide-react'
import type { ReactNode } from 'react'
import { defined, textOf } from '../../lib/search.ts'
import { sortingOf, sortText } from '../../lib/sorting.ts'
import { Button } from '../../ui/button.tsx'
import { CommandHint, CommandLines } from '../../ui/commands.tsx'
import { DataTable } from '../../ui/data-table.tsx'
import { inputLook } from '../../ui/field.tsx'
import { Page } from '../../ui/page.tsx'
import { EmptyState, ErrorNote, Loading } from '../../ui/states.tsx'
import { columns } from './columns.tsx'
import { VolumeDialog } from './volume-dialog.tsx'
import { volumesQuery } from './volume-query.ts'

const route = getRouteApi('/shell/volumes')

export function VolumesPage(): ReactNode {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const query = useQuery(volumesQuery)
  const { text = '' } = search
  const rows = query.data?.filter(({ name }) => name.includes(text.toLowerCase())) ?? []
  const set = (change: { [Name in keyof typeof search]?: (typeof search)[Name] | undefined }, replace = true) =>
    void navigate({ replace, search: (now) => defined({ ...now, ...change }) })
  const make = (
    <Button look="primary" onClick={() => set({ new: 'volume' }, false)}>
      <Plus aria-hidden="true" className="size-4" /> New volume
    </Button>
  )
  return (
    <Page
      title="Volumes"
      isFilling
      lead="Folders with a size of their own, which outlive sandboxes. One sandbox may write a volume, any number may read it."
      actions={
        <>
          <CommandHint
            commands={{
              cli: 'atoll volume ls',
              curl: { path: '/api/volumes' },
              sdk: 'const volumes = await client.volumes.list()',
            }}
          />
          {make}
        </>
      }
    >
      {query.isError && <ErrorNote error={query.error} onRetry={() => void query.refetch()} />}
      {query.isPending && <Loading label="Loading the volumes" rows={6} />}
      {query.data?.length === 0 && <NoVolumes make={make} />}
      {query.data !== undefined && query.data.length > 0 && (
        <>
          <input
            type="search"
            aria-label="Part of a name"
            placeholder="Filter by name"
            className={`${inputLook} shrink-0 sm:max-w-64`}
            value={text}
            onChange={({ target }) => set({ text: textOf(target.value) })}
          />
          <DataTable
            label="Volumes"
            rows={rows}
            columns={columns}
            rowId={({ id }) => id}
            sorting={sortingOf(search.sort, [{ id: 'name', desc: false }])}
            onSort={(sorting) => {
              const order = sortText(sorting)
              set({ sort: order === 'name' ? undefined : order })
            }}
            onOpen={({ name }) => void navigate({ to: '/volumes/$volume', params: { volume: name } })}
            empty={<EmptyState title="No volume fits">No name contains this text.</EmptyState>}
          />
        </>
      )}
      {search.new === 'volume' && (
        <VolumeDialog from={search.from} onClose={() => set({ new: undefined, from: undefined })} />
      )}
    </Page>
  )
}

function NoVolumes({ make }: { make: ReactNode }): ReactNode {
  return (
    <EmptyState title="No volumes yet" actions={make}>
      <p className="mb-3">
        A volume is mounted into a sandbox when that is created. What is in it stays when the sandbox is gone.
      </p>
      <div className="text-left">
        <CommandLines
          commands={{
            cli: 'atoll volume create data --size 1024',
            curl: { path: '/api/volumes', json: { name: 'data', sizeMB: 1024 } },
            sdk: "await client.volumes.create('data', { sizeMB: 1024 })",
          }}
        />
      </div>
    </EmptyState>
  )
}
