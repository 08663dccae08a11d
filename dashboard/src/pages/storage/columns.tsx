import { useQuery } from '@tanstack/react-query'
import type { VolumeInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatBytes } from '../../lib/format.ts'
import type { Column } from '../../ui/data-table.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { volumeQuery } from './volume-query.ts'

export const columns: readonly Column<VolumeInfo>[] = [
  {
    id: 'name',
    header: 'Name',
    width: 'minmax(8rem,2fr)',
    sortBy: ({ name }) => name,
    cell: ({ name }) => (
      <span className="font-medium" title={name}>
        {name}
      </span>
    ),
  },
  {
    id: 'used',
    header: 'Used',
    width: 'minmax(5rem,7rem)',
    isNumeric: true,
    cell: ({ name }) => <Used name={name} />,
  },
  {
    id: 'size',
    header: 'Size',
    width: 'minmax(5rem,7rem)',
    isNumeric: true,
    sortBy: ({ sizeMB }) => sizeMB,
    cell: ({ sizeMB }) => formatBytes(sizeMB * 2 ** 20),
  },
  {
    id: 'sandboxes',
    header: 'In use by',
    width: 'minmax(8rem,1.5fr)',
    isWideOnly: true,
    cell: ({ name }) => <InUseBy name={name} />,
  },
  {
    id: 'from',
    header: 'Clone of',
    width: 'minmax(6rem,1fr)',
    isWideOnly: true,
    sortBy: ({ from }) => from ?? '',
    cell: ({ from = '' }) => <span className="text-soft">{from}</span>,
  },
  {
    id: 'made',
    header: 'Made',
    width: '8.5rem',
    isWideOnly: true,
    isNumeric: true,
    sortBy: ({ createdAt }) => createdAt,
    cell: ({ createdAt }) => <TimeAgo time={createdAt} />,
  },
]

/** The list of volumes does not say it, so each row in view asks. */
function Used({ name }: { name: string }): ReactNode {
  const { data, isPending } = useQuery(volumeQuery(name))
  if (isPending) return '…'
  return data?.usedBytes === undefined ? 'unknown' : formatBytes(data.usedBytes)
}

function InUseBy({ name }: { name: string }): ReactNode {
  const { data } = useQuery(volumeQuery(name))
  if (data === undefined) return null
  const writer = data.mountedBy.find(({ readOnly }) => !readOnly)
  const readers = data.mountedBy.length - (writer === undefined ? 0 : 1)
  if (data.mountedBy.length === 0) return <span className="text-soft">nobody</span>
  return [
    ...(writer === undefined ? [] : ['1 writer']),
    ...(readers === 0 ? [] : [`${readers} ${readers === 1 ? 'reader' : 'readers'}`]),
  ].join(', ')
}
