import { Link } from '@tanstack/react-router'
import type { ListedCheckpointInfo } from 'atoll-sdk'
import { GitBranch } from 'lucide-react'
import type { ReactNode } from 'react'
import { visible } from '../../lib/visible.ts'
import { formatBytes } from '../../lib/format.ts'
import { Badge, StateBadge } from '../../ui/badge.tsx'
import type { Column } from '../../ui/data-table.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { kindWords, originWords, ownerWords, usesText } from './words.ts'

export const columns: readonly Column<ListedCheckpointInfo>[] = [
  {
    id: 'name',
    header: 'Name',
    width: 'minmax(7rem,2fr)',
    sortBy: ({ name }) => name.toLowerCase(),
    cell: ({ id, name }) => (
      <bdi className="font-medium" title={`${visible(name)} (${id})`}>
        {visible(name)}
      </bdi>
    ),
  },
  {
    id: 'sandbox',
    header: 'Sandbox',
    width: 'minmax(8rem,1.4fr)',
    isWideOnly: true,
    sortBy: ({ sandboxName, sandboxId }) => sandboxName ?? sandboxId,
    cell: ({ sandboxId, sandboxName }) => <TreeLink sandboxId={sandboxId} sandboxName={sandboxName} />,
  },
  {
    id: 'kind',
    header: 'Keeps',
    width: 'minmax(5rem,6.5rem)',
    sortBy: ({ kind, status }) => (status === 'ready' ? kind : status),
    cell: ({ kind, status, error }) =>
      status === 'ready' ? (
        <Badge tone={kind === 'full' ? 'accent' : 'plain'}>{kindWords[kind]}</Badge>
      ) : (
        <StateBadge state={status} {...(error === undefined ? {} : { title: error })} />
      ),
  },
  {
    id: 'owner',
    header: 'Needed by',
    width: '8rem',
    isWideOnly: true,
    sortBy: ({ owner }) => owner,
    cell: ({ owner, origin }) => (
      <span className="text-soft" title={`${ownerWords[owner]}; ${originWords[origin]}`}>
        {owner === origin || origin === 'image' ? ownerWords[owner] : `${ownerWords[owner]}, ${origin}`}
      </span>
    ),
  },
  {
    id: 'size',
    header: 'Size',
    width: '6rem',
    isWideOnly: true,
    isNumeric: true,
    sortBy: ({ sizeBytes }) => sizeBytes,
    cell: ({ sizeBytes }) => formatBytes(sizeBytes),
  },
  {
    id: 'made',
    header: 'Made',
    width: 'minmax(7.5rem,8.5rem)',
    isNumeric: true,
    sortBy: ({ createdAt }) => createdAt,
    cell: ({ createdAt }) => <TimeAgo time={createdAt} />,
  },
  {
    id: 'expires',
    header: 'Expires',
    width: '8.5rem',
    isWideOnly: true,
    isNumeric: true,
    // What never expires comes last.
    sortBy: ({ expiresAt }) => expiresAt ?? '~',
    cell: ({ expiresAt }) =>
      expiresAt === undefined ? <span className="text-soft">never</span> : <TimeAgo time={expiresAt} />,
  },
  {
    id: 'uses',
    header: 'Uses',
    width: '4.5rem',
    isWideOnly: true,
    isNumeric: true,
    sortBy: (row) => usesOf(row),
    cell: (row) => <span title={usesText(row)}>{usesOf(row)}</span>,
  },
]

function usesOf({ dependents }: ListedCheckpointInfo): number {
  return Object.values(dependents).reduce((sum, count) => sum + count, 0)
}

function TreeLink({
  sandboxId,
  sandboxName = sandboxId,
}: {
  sandboxId: string
  sandboxName: string | undefined
}): ReactNode {
  return (
    <Link
      to="/checkpoints/tree/$sandboxId"
      params={{ sandboxId }}
      title={`The tree of ${sandboxName}`}
      className="inline-flex max-w-full items-center gap-1.5 align-middle hover:text-accent hover:underline"
      onClick={(event) => event.stopPropagation()}
    >
      <GitBranch aria-hidden="true" className="size-3.5 shrink-0" />
      <bdi className="truncate">{sandboxName}</bdi>
    </Link>
  )
}
