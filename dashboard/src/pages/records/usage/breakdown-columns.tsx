import { Link } from '@tanstack/react-router'
import type { UsageInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatBytes, formatCount, formatUsd } from '../../../lib/format.ts'
import type { Column } from '../../../ui/data-table.tsx'
import { computeOf } from './amounts.ts'
import { formatAmount } from './measures.ts'

export type UsageItem = UsageInfo['items'][number]
type SandboxesItem = Exclude<UsageItem, { sessionId: string }>
type SessionItem = Extract<UsageItem, { sessionId: string }>

export function itemId(item: UsageItem): string {
  if ('sessionId' in item) return item.sessionId
  if ('sandboxId' in item) return item.sandboxId
  return 'tagValue' in item ? `=${item.tagValue}` : (item.keyId ?? '')
}

export function columnsOf(by: string): readonly Column<UsageItem>[] {
  const first: Column<UsageItem> = {
    id: 'name',
    header: by.startsWith('tag:') ? by.slice('tag:'.length) : ({ session: 'Session', key: 'Key' }[by] ?? 'Sandbox'),
    width: 'minmax(7rem,2fr)',
    cell: (item) => <ItemName item={item} />,
  }
  return [first, ...(by === 'session' ? sessionColumns : sandboxesColumns(by))]
}

function ItemName({ item }: { item: UsageItem }): ReactNode {
  const look = 'text-accent hover:underline'
  if ('sessionId' in item)
    return (
      <Link to="/sessions/$sessionId" params={{ sessionId: item.sessionId }} className={look}>
        {item.sessionId}
      </Link>
    )
  if ('sandboxId' in item) {
    const { alias, sandboxId } = item
    return (
      <Link to="/sandboxes/$sandboxId" params={{ sandboxId }} className={look} title={alias ?? sandboxId}>
        {alias ?? sandboxId}
      </Link>
    )
  }
  if ('tagValue' in item) return <span title={item.tagValue}>{item.tagValue === '' ? '(empty)' : item.tagValue}</span>
  return item.keyId ?? <span className="text-soft">none</span>
}

const sessionColumns: readonly Column<UsageItem>[] = [
  { id: 'model', header: 'Model', width: 'minmax(0,1fr)', isWideOnly: true, cell: (item) => sessionOf(item)?.model },
  number('read', 'Read', 'minmax(0,1fr)', true, (item) => formatCount(sessionOf(item)?.inputTokens ?? 0)),
  number('cached', 'From cache', 'minmax(0,1fr)', true, (item) => formatCount(sessionOf(item)?.cacheReadTokens ?? 0)),
  number('written', 'Written', 'minmax(0,1fr)', true, (item) => formatCount(sessionOf(item)?.outputTokens ?? 0)),
  number('cost', 'Cost', '7rem', false, (item) => {
    const { isCostKnown = true, modelUsd = 0 } = sessionOf(item) ?? {}
    return isCostKnown ? formatUsd(modelUsd) : <span title="Not all of its calls have a price">unknown</span>
  }),
]

function sandboxesColumns(by: string): readonly Column<UsageItem>[] {
  return [
    ...(by === 'sandbox'
      ? []
      : [
          number('count', 'Sandboxes', '6rem', true, (item) =>
            'sandboxCount' in item ? formatCount(item.sandboxCount) : '',
          ),
        ]),
    number(
      'memory',
      'Memory',
      '7.5rem',
      false,
      of(({ memoryGbHours }) => `${formatAmount(memoryGbHours)} GiB·h`),
    ),
    number(
      'cpu',
      'Processor',
      '7rem',
      true,
      of(({ cpuHours }) => `${formatAmount(cpuHours)} h`),
    ),
    number(
      'disk',
      'Disk',
      '8rem',
      true,
      of(({ diskGbHours }) => `${formatAmount(diskGbHours)} GiB·h`),
    ),
    number(
      'sent',
      'Sent',
      '6rem',
      true,
      of(({ egressBytes }) => formatBytes(egressBytes)),
    ),
    number(
      'cost',
      'Cost',
      '5.5rem',
      false,
      of(({ computeUsd }) => formatUsd(computeUsd)),
    ),
  ]
}

function of(text: (amounts: ReturnType<typeof computeOf>) => string): (item: UsageItem) => string {
  return (item) => ('sessionId' in item ? '' : text(computeOf(item satisfies SandboxesItem)))
}

function sessionOf(item: UsageItem): SessionItem | undefined {
  return 'sessionId' in item ? item : undefined
}

function number(
  id: string,
  header: string,
  width: string,
  isWideOnly: boolean,
  cell: (item: UsageItem) => ReactNode,
): Column<UsageItem> {
  return { id, header, width, isWideOnly, isNumeric: true, cell }
}
