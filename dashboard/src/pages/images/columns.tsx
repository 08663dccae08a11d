import type { ReactNode } from 'react'
import { visible } from '../../lib/visible.ts'
import { formatBytes } from '../../lib/format.ts'
import { Badge, StateBadge } from '../../ui/badge.tsx'
import type { Column } from '../../ui/data-table.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import type { ListedImage } from './listed-image.ts'

const kindTitles: Record<ListedImage['kind'], string> = {
  own: 'Of this organisation',
  shared: 'Of the operator, for all organisations',
  installed: 'Installed with the server',
}

export const columns: readonly Column<ListedImage>[] = [
  {
    id: 'name',
    header: 'Name',
    width: 'minmax(8rem,2fr)',
    sortBy: ({ nameOrId }) => nameOrId.toLowerCase(),
    cell: ({ name, nameOrId }) => (
      <bdi className={name === undefined ? 'font-mono text-[13px] text-soft' : 'font-medium'} title={nameOrId}>
        {visible(nameOrId)}
      </bdi>
    ),
  },
  {
    id: 'status',
    header: 'State',
    width: 'minmax(5.5rem,7rem)',
    sortBy: ({ status }) => status,
    cell: ({ status, error }) => (
      <StateBadge state={status} {...(error === undefined ? {} : { title: visible(error) })} />
    ),
  },
  {
    id: 'kind',
    header: 'Whose',
    width: '8rem',
    isWideOnly: true,
    sortBy: ({ kind }) => kind,
    cell: ({ kind, isPublic }) => (
      <span className="flex items-center gap-1.5" title={kindTitles[kind]}>
        {kind}
        {kind === 'own' && isPublic && <Badge title="Every organisation may start sandboxes from it">public</Badge>}
      </span>
    ),
  },
  {
    id: 'source',
    header: 'Made of',
    width: '9rem',
    isWideOnly: true,
    sortBy: ({ madeOf }) => madeOf,
    cell: ({ madeOf }) => <span className="text-soft">{madeOf}</span>,
  },
  {
    id: 'size',
    header: 'Size',
    width: 'minmax(5rem,6rem)',
    isNumeric: true,
    sortBy: ({ sizeBytes }) => sizeBytes ?? -1,
    cell: ({ sizeBytes }) => (sizeBytes === undefined ? '' : formatBytes(sizeBytes)),
  },
  {
    id: 'created',
    header: 'Made',
    width: '8.5rem',
    isWideOnly: true,
    isNumeric: true,
    sortBy: ({ createdAt }) => createdAt ?? '',
    cell: ({ createdAt }) => <MaybeAgo time={createdAt} />,
  },
  {
    id: 'used',
    header: 'Last used',
    width: '8.5rem',
    isWideOnly: true,
    isNumeric: true,
    sortBy: ({ lastUsedAt }) => lastUsedAt ?? '',
    cell: ({ lastUsedAt }) => <MaybeAgo time={lastUsedAt} />,
  },
]

function MaybeAgo({ time }: { time: string | undefined }): ReactNode {
  return time === undefined ? '' : <TimeAgo time={time} />
}
