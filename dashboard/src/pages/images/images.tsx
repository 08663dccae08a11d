import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { Hammer } from 'lucide-react'
import type { ReactNode } from 'react'
import { useAccount } from '../../account/account.tsx'
import { defined, textOf } from '../../lib/search.ts'
import { sortingOf, sortText } from '../../lib/sorting.ts'
import { Button } from '../../ui/button.tsx'
import { CommandHint } from '../../ui/commands.tsx'
import { DataTable } from '../../ui/data-table.tsx'
import { CheckField, inputLook } from '../../ui/field.tsx'
import { Page } from '../../ui/page.tsx'
import { EmptyState, ErrorNote, Loading } from '../../ui/states.tsx'
import { BuildDialog } from './build/build-dialog.tsx'
import { columns } from './columns.tsx'
import { imagesQuery, type ListedImage } from './listed-image.ts'
import { RegistriesDialog } from './registries-dialog.tsx'

const route = getRouteApi('/shell/images')

export function ImagesPage(): ReactNode {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const account = useAccount()
  const query = useQuery(imagesQuery)
  const rows = query.data?.filter((image) => isShown(image, search)) ?? []
  const unnamed = query.data?.filter(({ name }) => name === undefined).length ?? 0
  const set = (change: { [Name in keyof typeof search]?: (typeof search)[Name] | undefined }, replace = true) =>
    void navigate({ replace, search: (now) => defined({ ...now, ...change }) })
  return (
    <Page
      title="Images"
      isFilling
      lead="What sandboxes start from: disks that are built once, and started from any number of times."
      actions={
        <>
          <CommandHint
            commands={{
              cli: `atoll image ls${search.all === undefined ? '' : ' -a'}`,
              curl: { path: search.all === undefined ? '/api/templates' : '/api/images' },
              sdk: 'const images = await Image.list()',
            }}
          />
          {account?.key.namePrefix === null && (
            <Button onClick={() => set({ registries: 1 }, false)}>Registries</Button>
          )}
          <Button look="primary" onClick={() => set({ new: 'image' }, false)}>
            <Hammer aria-hidden="true" className="size-4" /> Build an image
          </Button>
        </>
      }
    >
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
        <input
          type="search"
          aria-label="Part of a name"
          placeholder="Filter by name"
          className={`${inputLook} sm:max-w-64`}
          value={search.text ?? ''}
          onChange={({ target }) => set({ text: textOf(target.value) })}
        />
        {(unnamed > 0 || search.all === 1) && (
          <CheckField
            label={`Those without a name too (${unnamed})`}
            checked={search.all === 1}
            onChange={({ target }) => set({ all: target.checked ? 1 : undefined })}
          />
        )}
      </div>
      {query.isError && <ErrorNote error={query.error} onRetry={() => void query.refetch()} />}
      {query.isPending && <Loading label="Loading the images" rows={6} />}
      {query.data !== undefined && (
        <DataTable
          label="Images"
          rows={rows}
          columns={columns}
          rowId={({ kind, nameOrId }) => `${kind} ${nameOrId}`}
          sorting={sortingOf(search.sort)}
          onSort={(sorting) => set({ sort: sortText(sorting) })}
          onOpen={({ nameOrId }) => void navigate({ to: '/images/$image', params: { image: nameOrId } })}
          empty={
            <EmptyState
              title="No image fits"
              actions={
                <Link to="/images" className="text-accent underline">
                  Show all
                </Link>
              }
            >
              No name contains this text.
            </EmptyState>
          }
        />
      )}
      {search.new === 'image' && (
        <BuildDialog
          source={search.from ?? 'steps'}
          onSource={(source) => set({ from: source === 'steps' ? undefined : source })}
          onClose={() => set({ new: undefined, from: undefined })}
        />
      )}
      {search.registries === 1 && <RegistriesDialog onClose={() => set({ registries: undefined })} />}
    </Page>
  )
}

function isShown({ name }: ListedImage, { text = '', all }: { text?: string; all?: number }): boolean {
  if (name === undefined) return all === 1 && text === ''
  return name.toLowerCase().includes(text.toLowerCase())
}
