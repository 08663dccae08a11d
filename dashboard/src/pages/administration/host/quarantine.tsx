import { useQuery } from '@tanstack/react-query'
import type { Quarantine as QuarantineInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { formatBytes, formatCount } from '../../../lib/format.ts'
import { CodeLine } from '../../../ui/copy.tsx'
import { cx } from '../../../ui/cx.ts'
import { DataTable, type Column } from '../../../ui/data-table.tsx'
import { Panel } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'

type Item = QuarantineInfo['items'][number]

const columns: readonly Column<Item>[] = [
  {
    id: 'id',
    header: 'Id',
    width: 'minmax(9rem,1fr)',
    cell: ({ id }) => (
      <code className="truncate font-mono text-[13px]" title={id}>
        {id}
      </code>
    ),
  },
  { id: 'kind', header: 'Kind', width: '6.5rem', isWideOnly: true, cell: ({ kind }) => kind },
  {
    id: 'why',
    header: 'Why',
    width: 'minmax(9rem,2fr)',
    cell: ({ why }) => (
      <span className="truncate" title={why}>
        {why}
      </span>
    ),
  },
  {
    id: 'size',
    header: 'Size',
    width: '6rem',
    isWideOnly: true,
    isNumeric: true,
    cell: ({ sizeBytes }) => (sizeBytes === null ? '–' : formatBytes(sizeBytes)),
  },
  { id: 'since', header: 'Since', width: '8rem', isWideOnly: true, cell: ({ since }) => <TimeAgo time={since} /> },
  {
    id: 'removed',
    header: 'Removed',
    width: '8rem',
    cell: ({ removedAt }) => (removedAt === null ? 'never' : <TimeAgo time={removedAt} />),
  },
]

/** What the server holds back because its database or its disk does not agree with it. For the operator's key alone. */
export function Quarantine(): ReactNode {
  const found = useQuery({ queryKey: ['quarantine'], queryFn: ({ signal }) => client.quarantine({ signal }) })
  return (
    <Panel title="Quarantine">
      {found.isPending ? (
        <Loading label="Loading what is in quarantine" rows={1} />
      ) : found.isError ? (
        <ErrorNote error={found.error} onRetry={() => void found.refetch()} />
      ) : found.data.count === 0 ? (
        <p className="text-soft">
          Empty. Here would be sandboxes and checkpoints that the database does not know, or whose disk or record is
          damaged.
        </p>
      ) : (
        <div className="flex flex-col gap-3">
          <p className="text-soft">
            {found.data.count === 1 ? 'One item is' : `${formatCount(found.data.count)} items are`} held back
            {found.data.count > found.data.items.length &&
              `, of which the oldest ${formatCount(found.data.items.length)} are listed`}
            . On the machine of the server each can be brought back or removed:
          </p>
          <CodeLine text="npm run quarantine -- list" label="Copy the command" />
          <div className={cx('flex flex-col', found.data.items.length > 3 ? 'h-64' : 'h-44')}>
            <DataTable
              label="Items in quarantine"
              rows={found.data.items}
              columns={columns}
              rowId={({ id, since }) => `${id} ${since}`}
            />
          </div>
        </div>
      )}
    </Panel>
  )
}
