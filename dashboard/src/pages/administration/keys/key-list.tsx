import { useQuery } from '@tanstack/react-query'
import type { KeyInfo } from 'atoll-sdk'
import { useMemo, useState, type ReactNode } from 'react'
import { formatCount, formatTime } from '../../../lib/format.ts'
import { serverNow } from '../../../lib/clock.ts'
import { Badge } from '../../../ui/badge.tsx'
import { Button } from '../../../ui/button.tsx'
import { type Column, DataTable } from '../../../ui/data-table.tsx'
import { inputLook } from '../../../ui/field.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { cx } from '../../../ui/cx.ts'
import { EndKey } from './end-key.tsx'
import { KeyDetails } from './key-details.tsx'
import { type KeyPlace, makersOf } from './place.ts'

/** From so many keys on they can be searched. */
const searchedFrom = 10

/** The keys that this key may see, with what bounds each. */
export function KeyList({
  place,
  onMake,
  openId,
  onOpen,
}: {
  place: KeyPlace
  onMake: () => void
  /** The key whose details are seen; undefined: none. */
  openId: string | undefined
  onOpen: (id: string | undefined) => void
}): ReactNode {
  const { keys, queryKey } = place
  const [sorting, setSorting] = useState([{ id: 'made', desc: true }])
  const [text, setText] = useState('')
  const list = useQuery({ queryKey, queryFn: ({ signal }) => keys.list({ signal }) })
  const all = list.data
  const columns = useMemo(() => columnsOf(place, all ?? []), [place, all])
  if (list.isPending) return <Loading label="Loading the keys" rows={6} />
  if (list.isError) return <ErrorNote error={list.error} onRetry={() => void list.refetch()} />
  if (list.data.length === 0)
    return (
      <EmptyState title="No keys yet" actions={<Button onClick={onMake}>New key</Button>}>
        Nobody can call the API for this organisation until it has one.
      </EmptyState>
    )
  const opened = list.data.find(({ id }) => id === openId)
  const asked = text.trim().toLowerCase()
  const rows = list.data.filter((key) =>
    [key.name, key.id, key.keyPrefix ?? '', key.namePrefix ?? '', key.scopes?.join(' ') ?? 'all'].some((part) =>
      part.toLowerCase().includes(asked),
    ),
  )
  return (
    <>
      {list.data.length >= searchedFrom && (
        <div className="flex items-center gap-3">
          <input
            type="search"
            aria-label="Search the keys"
            placeholder="Name, id, scope …"
            value={text}
            onChange={({ target }) => setText(target.value)}
            className={cx(inputLook, 'max-w-xs')}
          />
          <span className="text-[13px] text-soft">
            {rows.length === list.data.length
              ? `${formatCount(rows.length)} keys`
              : `${formatCount(rows.length)} of ${formatCount(list.data.length)} keys`}
          </span>
        </div>
      )}
      <DataTable
        label="Keys"
        rows={rows}
        columns={columns}
        rowId={({ id }) => id}
        rowHeightPx={56}
        sorting={sorting}
        onSort={setSorting}
        onOpen={({ id }) => onOpen(id)}
        empty="No key has that name, id or scope."
      />
      {opened !== undefined && (
        <KeyDetails
          apiKey={opened}
          makerName={makerName(opened, namesOf(list.data))}
          onClose={() => onOpen(undefined)}
        />
      )}
    </>
  )
}

function namesOf(keys: readonly KeyInfo[]): ReadonlyMap<string, string> {
  return new Map(keys.map(({ id, name }) => [id, name]))
}

function makerName({ madeBy }: KeyInfo, names: ReadonlyMap<string, string>): string {
  if (madeBy === null) return 'the operator or the server'
  return names.get(madeBy) || madeBy
}

function columnsOf(place: KeyPlace, all: readonly KeyInfo[]): readonly Column<KeyInfo>[] {
  const own = makersOf(place.ownId, all)
  const names = namesOf(all)
  return [
    {
      id: 'name',
      header: 'Name',
      width: 'minmax(11rem,2fr)',
      sortBy: ({ name }) => name.toLowerCase(),
      cell: ({ id, name, keyPrefix, isDefault }) => (
        <TwoLines
          title={`${name} ${id}`}
          first={
            <>
              <span className={cx('min-w-0 truncate', name === '' ? 'text-soft' : 'font-medium')}>
                {name === '' ? id : name}
              </span>
              {id === place.ownId && <Badge tone="accent">this one</Badge>}
              {isDefault && <Badge title="Made by the first start, or set by ATOLL_API_KEY">default</Badge>}
            </>
          }
          second={keyPrefix !== null && <code className="font-mono">{keyPrefix}…</code>}
        />
      ),
    },
    {
      id: 'scopes',
      header: 'May do',
      width: 'minmax(0,3fr)',
      isWideOnly: true,
      sortBy: ({ scopes }) => scopes?.length ?? Infinity,
      cell: ({ scopes, namePrefix, sandboxesMax }) => {
        const bounds = [
          ...(namePrefix === null ? [] : [`names ${namePrefix}…`]),
          ...(sandboxesMax === null ? [] : [`at most ${formatCount(sandboxesMax)} sandboxes`]),
        ].join(', ')
        const text = scopes?.join(', ') ?? 'all'
        return (
          <TwoLines
            title={`${text}\n${bounds}`}
            first={<span className="truncate">{text}</span>}
            second={bounds !== '' && bounds}
          />
        )
      },
    },
    {
      id: 'made',
      header: 'Made',
      width: 'minmax(0,9rem)',
      isWideOnly: true,
      sortBy: ({ createdAt }) => createdAt,
      cell: (key) => (
        <TwoLines
          title={key.madeBy ?? ''}
          first={<TimeAgo time={key.createdAt} />}
          second={`by ${makerName(key, names)}`}
        />
      ),
    },
    {
      id: 'end',
      header: 'Ends',
      width: '8.5rem',
      isWideOnly: true,
      sortBy: ({ expiresAt }) => (expiresAt === null ? Infinity : Date.parse(expiresAt)),
      cell: ({ expiresAt }) => {
        if (expiresAt === null) return <span className="text-soft">never</span>
        if (Date.parse(expiresAt) <= serverNow())
          return (
            <Badge tone="bad" title={formatTime(expiresAt)}>
              has ended
            </Badge>
          )
        return <TimeAgo time={expiresAt} />
      },
    },
    {
      id: 'used',
      header: 'Last used',
      width: '8.5rem',
      sortBy: ({ lastUsedAt }) => lastUsedAt ?? '',
      cell: ({ lastUsedAt }) =>
        lastUsedAt === null ? <span className="text-soft">never</span> : <TimeAgo time={lastUsedAt} />,
    },
    {
      id: 'acts',
      header: 'Acts',
      isHeaderHidden: true,
      width: '3.25rem',
      cell: (key) => (
        // A click in the dialog is none on the row.
        <span onClick={(event) => event.stopPropagation()}>
          <EndKey apiKey={key} all={all} isOwn={own.has(key.id)} place={place} />
        </span>
      ),
    },
  ]
}

function TwoLines({ first, second, title }: { first: ReactNode; second: ReactNode; title: string }): ReactNode {
  return (
    <span className="block min-w-0" title={title}>
      <span className="flex min-w-0 items-center gap-2">{first}</span>
      <span className="block truncate text-[13px] text-soft">{second}</span>
    </span>
  )
}
