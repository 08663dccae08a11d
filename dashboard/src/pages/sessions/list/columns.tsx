import { Link } from '@tanstack/react-router'
import { ExternalLink, GitBranchPlus } from 'lucide-react'
import type { ReactNode } from 'react'
import { formatCount, formatUsd } from '../../../lib/format.ts'
import { StateBadge } from '../../../ui/badge.tsx'
import type { Column } from '../../../ui/data-table.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { titleOf } from '../use-session.ts'
import type { SessionRow } from './session-collection.ts'

/** The columns of the list of sessions. */
export const columns: readonly Column<SessionRow>[] = [
  { id: 'title', header: 'Session', width: 'minmax(9rem,3fr)', cell: (row) => <TitleCell row={row} /> },
  {
    id: 'state',
    header: 'State',
    width: '7rem',
    cell: ({ activity, reason, archivedReason }) => {
      const title = archivedReason ?? (reason === 'budget' ? 'Its budget is spent' : undefined)
      return <StateBadge state={activity} {...(title === undefined ? {} : { title })} />
    },
  },
  {
    id: 'user',
    header: 'User',
    width: 'minmax(5rem,1fr)',
    isWideOnly: true,
    cell: ({ userId, userName }) => <bdi title={userId}>{userName ?? userId}</bdi>,
  },
  {
    id: 'model',
    header: 'Model',
    width: 'minmax(5rem,1.2fr)',
    isWideOnly: true,
    cell: ({ agent }) => <bdi title={`${agent.model}, harness ${agent.harness}`}>{agent.model}</bdi>,
  },
  {
    id: 'created',
    header: 'Created',
    width: '9.5rem',
    isWideOnly: true,
    cell: ({ createdAt }) => <TimeAgo time={createdAt} />,
  },
  {
    id: 'cost',
    header: 'Cost',
    width: '6.5rem',
    isWideOnly: true,
    isNumeric: true,
    cell: (row) => <CostCell row={row} />,
  },
  { id: 'preview', header: 'Preview', width: '4.5rem', cell: (row) => <PreviewCell row={row} /> },
]

function TitleCell({ row }: { row: SessionRow }): ReactNode {
  const { id, name, project, forkedFrom } = row
  const title = titleOf(row)
  return (
    <span className="flex min-w-0 flex-col leading-tight">
      <span className="flex min-w-0 items-center gap-1.5">
        {forkedFrom !== undefined && (
          <GitBranchPlus role="img" aria-label="fork" className="size-3.5 shrink-0 text-soft" />
        )}
        <Link
          to="/sessions/$sessionId"
          params={{ sessionId: id }}
          tabIndex={-1}
          title={title}
          className="truncate font-medium hover:underline"
          onClick={(event) => event.stopPropagation()}
        >
          <bdi>{title}</bdi>
        </Link>
      </span>
      <span className="truncate text-xs text-soft">
        {name === undefined || project.title === '' ? (
          <span className="font-mono">{id}</span>
        ) : (
          <bdi>{project.title}</bdi>
        )}
      </span>
    </span>
  )
}

function CostCell({ row: { usage, agent } }: { row: SessionRow }): ReactNode {
  const { totalCostUsd, inputTokens, outputTokens } = usage
  const tokens = `${formatCount(inputTokens + outputTokens)} tokens`
  if (totalCostUsd === undefined) return <span title={`${tokens}; the model has no price`}>–</span>
  const limit = agent.maxCostUsd === undefined ? '' : `, at most ${formatUsd(agent.maxCostUsd)}`
  return <span title={`${tokens}${limit}`}>{formatUsd(totalCostUsd)}</span>
}

function PreviewCell({ row }: { row: SessionRow }): ReactNode {
  const { activity, previewUrl } = row
  if (activity === 'ended' || activity === 'failed') return null
  return (
    <a
      href={previewUrl}
      target="_blank"
      rel="noopener noreferrer"
      tabIndex={-1}
      title={previewUrl}
      aria-label={`Preview of ${titleOf(row)} in a tab`}
      className="inline-flex size-8 items-center justify-center rounded-md text-soft hover:text-ink"
      onClick={(event) => event.stopPropagation()}
    >
      <ExternalLink aria-hidden="true" className="size-4" />
    </a>
  )
}
