import { Link } from '@tanstack/react-router'
import type { SandboxInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { IdleLeft } from '../../sandboxes/idle-left.tsx'
import { CpuGraph, MemoryGraph } from '../../sandboxes/usage-graphs.tsx'
import { nameOf } from '../../sandboxes/sandbox.ts'
import { StateBadge } from '../../ui/badge.tsx'
import type { Column } from '../../ui/data-table.tsx'
import { TimeAgo } from '../../ui/time.tsx'

/** The columns of the list of sandboxes. `onPast`: see `IdleLeft`. */
export function columnsOf(onPast: (id: string) => void): readonly Column<SandboxInfo>[] {
  return [
    {
      id: 'name',
      header: 'Sandbox',
      width: 'minmax(7rem,2fr)',
      sortBy: nameOf,
      cell: (info) => <NameCell info={info} />,
    },
    {
      id: 'state',
      header: 'State',
      width: '6.5rem',
      sortBy: ({ status }) => status,
      cell: ({ status, reasonMessage }) => (
        <span className="flex">
          <StateBadge state={status} {...(reasonMessage === undefined ? {} : { title: reasonMessage })} />
        </span>
      ),
    },
    {
      id: 'image',
      header: 'Image',
      width: 'minmax(4rem,1fr)',
      isWideOnly: true,
      sortBy: ({ templateID }) => templateID,
      cell: ({ templateID }) => <bdi title={templateID}>{templateID}</bdi>,
    },
    {
      id: 'started',
      header: 'Started',
      width: '8.5rem',
      isWideOnly: true,
      sortBy: ({ startedAt }) => Date.parse(startedAt),
      cell: ({ startedAt }) => <TimeAgo time={startedAt} />,
    },
    {
      id: 'idle',
      header: 'Idle left',
      width: '6.5rem',
      sortBy: idleSortOf,
      cell: (info) => <IdleLeft info={info} onPast={onPast} />,
    },
    { id: 'cpu', header: 'CPU', width: '7rem', isWideOnly: true, cell: (info) => <CpuGraph info={info} /> },
    {
      id: 'memory',
      header: 'Memory',
      width: '8.75rem',
      isWideOnly: true,
      sortBy: ({ memoryMB }) => memoryMB,
      cell: (info) => <MemoryGraph info={info} />,
    },
    {
      id: 'tags',
      header: 'Tags',
      width: 'minmax(4rem,1fr)',
      isWideOnly: true,
      cell: (info) => <TagsCell info={info} />,
    },
  ]
}

function NameCell({ info }: { info: SandboxInfo }): ReactNode {
  const { name, sandboxID } = info
  return (
    <span className="flex min-w-0 flex-col leading-tight">
      <Link
        to="/sandboxes/$sandboxId"
        params={{ sandboxId: sandboxID }}
        tabIndex={-1}
        title={nameOf(info)}
        className="truncate font-medium hover:underline"
        onClick={(event) => event.stopPropagation()}
      >
        {nameOf(info)}
      </Link>
      {name !== undefined && <span className="truncate font-mono text-xs text-soft">{sandboxID}</span>}
    </span>
  )
}

function TagsCell({ info: { tags } }: { info: SandboxInfo }): ReactNode {
  const words = Object.entries(tags).map(([key, value]) => (value === '' ? key : `${key}=${value}`))
  return (
    <span className="block truncate text-[13px] text-soft" title={words.join('\n')}>
      <bdi>{words.join(', ')}</bdi>
    </span>
  )
}

/** Those that never end come last, those that sleep after them. */
function idleSortOf({ status, endAt }: SandboxInfo): number {
  if (status !== 'running') return Number.MAX_SAFE_INTEGER
  return endAt === null ? Number.MAX_SAFE_INTEGER - 1 : Date.parse(endAt)
}
