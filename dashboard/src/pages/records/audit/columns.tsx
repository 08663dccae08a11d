import type { AuditEntryInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatTime } from '../../../lib/format.ts'
import { Badge } from '../../../ui/badge.tsx'
import type { Column } from '../../../ui/data-table.tsx'
import { type ActorNames, actorText } from './actors.ts'

const short = new Intl.DateTimeFormat(undefined, {
  ...({ month: 'short', day: 'numeric', hour: 'numeric', minute: '2-digit', second: '2-digit' } as const),
})
const partsMax = 8
const charsMax = 160

export function columnsOf(names: ActorNames): readonly Column<AuditEntryInfo>[] {
  return [
    {
      id: 'time',
      header: 'Time',
      width: '10.5rem',
      cell: ({ ts }) => (
        <time dateTime={ts} title={formatTime(ts)} className="tabular-nums">
          {short.format(new Date(ts))}
        </time>
      ),
    },
    {
      id: 'who',
      header: 'Who',
      width: 'minmax(0,1.2fr)',
      isWideOnly: true,
      cell: (entry) => (
        <span title={`${entry.actorType} ${entry.actorId ?? ''}`}>
          {actorText(entry, names)}
          {entry.actorId !== null && <span className="ml-1.5 text-xs text-soft">{entry.actorType}</span>}
        </span>
      ),
    },
    {
      id: 'operation',
      header: 'Call',
      width: 'minmax(6rem,1.2fr)',
      cell: ({ operation }) => <span className="font-mono text-[13px]">{operation}</span>,
    },
    {
      id: 'about',
      header: 'About',
      width: 'minmax(0,3fr)',
      isWideOnly: true,
      cell: ({ subject }) => <span className="font-mono text-[13px] text-soft">{subjectText(subject)}</span>,
    },
    {
      id: 'from',
      header: 'From',
      width: 'minmax(0,1fr)',
      isWideOnly: true,
      cell: ({ address }) => <span className="tabular-nums">{address}</span>,
    },
    { id: 'status', header: 'Result', width: '5rem', cell: ({ status }) => <AuditStatus status={status} /> },
  ]
}

/** `null`: the call was let in. */
export function AuditStatus({ status }: { status: number | null }): ReactNode {
  if (status === null) return <Badge tone="good">let in</Badge>
  return (
    <Badge tone={status >= 500 ? 'bad' : 'warn'} title="What it was refused with, or has failed with">
      {status}
    </Badge>
  )
}

/** The first few facts on one line. */
function subjectText(subject: Record<string, unknown>): string {
  const text = Object.entries(subject)
    .slice(0, partsMax)
    .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`.slice(0, charsMax))
    .join('  ')
  return text.length > charsMax ? `${text.slice(0, charsMax)}…` : text
}
