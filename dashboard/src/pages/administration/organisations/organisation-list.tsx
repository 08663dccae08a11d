import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import type { OrganisationInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { formatCount } from '../../../lib/format.ts'
import { Badge, StateBadge } from '../../../ui/badge.tsx'
import { Button } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { cx } from '../../../ui/cx.ts'
import { type Column, DataTable } from '../../../ui/data-table.tsx'
import { inputLook } from '../../../ui/field.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { limitNames, limitText } from '../limits.ts'

const listedMax = 10_000

const columns: readonly Column<OrganisationInfo>[] = [
  {
    id: 'name',
    header: 'Name',
    width: 'minmax(9rem,2fr)',
    sortBy: ({ name }) => name.toLowerCase(),
    cell: ({ name, isDefault }) => (
      <span className="flex min-w-0 items-center gap-2">
        <span className="min-w-0 truncate font-medium" title={name}>
          {name}
        </span>
        {isDefault && <Badge title="The one of a fresh installation">default</Badge>}
      </span>
    ),
  },
  {
    id: 'id',
    header: 'Id',
    width: 'minmax(0,13rem)',
    isWideOnly: true,
    cell: ({ id }) => <code className="font-mono text-[13px]">{id}</code>,
  },
  {
    id: 'limits',
    header: 'Own limits',
    width: 'minmax(0,2fr)',
    isWideOnly: true,
    cell: ({ limits }) => {
      const own = limitNames.filter((name) => limits[name] !== undefined && limits[name] !== null)
      if (own.length === 0) return <span className="text-soft">the defaults</span>
      const text = own.map((name) => `${name} ${limitText(limits, name)}`).join(', ')
      return <span title={text}>{text}</span>
    },
  },
  {
    id: 'status',
    header: 'State',
    width: '7rem',
    sortBy: ({ status }) => status,
    cell: ({ status, suspendedReason }) => (
      <StateBadge state={status} {...(suspendedReason === undefined ? {} : { title: suspendedReason })} />
    ),
  },
  {
    id: 'made',
    header: 'Made',
    width: '8.5rem',
    isWideOnly: true,
    sortBy: ({ createdAt }) => createdAt,
    cell: ({ createdAt }) => <TimeAgo time={createdAt} />,
  },
]

/** All organisations of the installation. The operator has no log to follow: the list is read when the page is opened and after its own acts. */
export function OrganisationList({ onMake }: { onMake: () => void }): ReactNode {
  const navigate = useNavigate()
  const [sorting, setSorting] = useState([{ id: 'name', desc: false }])
  const [text, setText] = useState('')
  const list = useQuery({
    queryKey: ['organisations'],
    queryFn: async ({ signal }) => {
      const found: OrganisationInfo[] = []
      for await (const one of client.organisations.list({ signal })) if (found.push(one) >= listedMax) break
      return found
    },
  })
  if (list.isPending) return <Loading label="Loading the organisations" rows={6} />
  if (list.isError) return <ErrorNote error={list.error} onRetry={() => void list.refetch()} />
  if (list.data.length === 0)
    return (
      <EmptyState title="No organisations" actions={<Button onClick={onMake}>New organisation</Button>}>
        Teams or customers that share this installation are organisations of it.
      </EmptyState>
    )
  const asked = text.trim().toLowerCase()
  const rows = list.data.filter(({ name, id }) => name.toLowerCase().includes(asked) || id.includes(asked))
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-3">
      <div className="flex items-center gap-3">
        <input
          type="search"
          aria-label="Search the organisations"
          placeholder="Name or id"
          value={text}
          onChange={({ target }) => setText(target.value)}
          className={cx(inputLook, 'max-w-xs')}
        />
        <span className="text-[13px] text-soft">
          {formatCount(rows.length)} of {formatCount(list.data.length)}
          {list.data.length >= listedMax && ', the first of more'}
        </span>
        <span className="ml-auto">
          <CommandHint
            commands={{
              cli: 'atoll org ls',
              curl: { path: '/api/orgs' },
              sdk: 'for await (const organisation of client.organisations.list()) console.log(organisation)',
            }}
          />
        </span>
      </div>
      <DataTable
        label="Organisations"
        rows={rows}
        columns={columns}
        rowId={({ id }) => id}
        sorting={sorting}
        onSort={setSorting}
        onOpen={({ id }) => void navigate({ to: '/organisations/$id', params: { id } })}
        empty="No organisation has that name or id."
      />
    </div>
  )
}
