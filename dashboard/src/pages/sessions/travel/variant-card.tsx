import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { SessionInfo, TurnInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { ComparisonView } from '../../../diff/comparison-view.tsx'
import { visible } from '../../../lib/visible.ts'
import { formatCount, formatUsd, shorten } from '../../../lib/format.ts'
import { Badge, StateBadge } from '../../../ui/badge.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { SessionPreview } from '../aside/session-preview.tsx'
import { BoundedText } from '../conversation/bounded-text.tsx'
import { Markdown } from '../conversation/markdown.tsx'
import { sessionOf, useSession } from '../use-session.ts'
import { EndVariant, KeepVariant } from './variant-acts.tsx'

const textCharactersMax = 2000
const messageCharactersMax = 300

interface VariantCardProps {
  session: SessionInfo
  turn: TurnInfo
  fork: TurnInfo['forks'][number]
  label: string
  othersCount: number
  onAdopted: (name: string) => void
  onChanged: () => void
}

/** One fork: its state, its page, what it said, what it has changed and used. */
export function VariantCard(props: VariantCardProps): ReactNode {
  const { session, turn, fork, label, othersCount, onAdopted, onChanged } = props
  const may = useMay()
  const info = useSession(fork.id)
  const { activity } = info.data ?? fork
  return (
    <article aria-label={label} className="flex min-w-0 flex-col gap-3 rounded-lg border bg-raised p-3">
      <header className="flex flex-wrap items-center gap-2">
        <h2 className="font-semibold">{label}</h2>
        <StateBadge state={activity} />
        {fork.archivedReason !== undefined && <Badge title={fork.archivedReason}>archived</Badge>}
        <Link
          to="/sessions/$sessionId"
          params={{ sessionId: fork.id }}
          title={visible(fork.name ?? fork.id)}
          aria-label={`Open ${label}`}
          className="ml-auto text-[13px] text-accent underline"
        >
          Open
        </Link>
      </header>
      {info.data !== undefined ? (
        <Facts session={session} turn={turn} info={info.data} label={label} />
      ) : info.isError ? (
        <ErrorNote error={info.error} onRetry={() => void info.refetch()} />
      ) : (
        <Loading label={`Reading ${label}`} />
      )}
      {may('session:write') && (
        <footer className="mt-auto flex flex-wrap gap-2 pt-1">
          <KeepVariant {...{ session, fork, label, othersCount, onAdopted, onChanged }} />
          <EndVariant fork={fork} label={label} onChanged={onChanged} />
        </footer>
      )}
    </article>
  )
}

function Facts({
  session,
  turn,
  info,
  label,
}: {
  session: SessionInfo
  turn: TurnInfo
  info: SessionInfo
  label: string
}): ReactNode {
  const { activity, messages, createdAt, usage, events } = info
  // A turn that has ended may have changed the page.
  const turnsEnded = events.filter(({ type }) => type === 'turn_completed').length
  // Messages of the source were written before the fork began.
  const own = messages.filter((message) => message.createdAt >= createdAt && message.left !== true)
  const asked = own.find(({ role }) => role === 'user')?.content
  const answer = own.findLast(({ role }) => role === 'assistant')?.content
  const failure = activity === 'failed' ? events.findLast(({ level }) => level === 'error')?.message : undefined
  const cost = usage.totalCostUsd === undefined ? '' : `, ${formatUsd(usage.totalCostUsd)}`
  return (
    <>
      <p dir="auto" className="break-words text-soft">
        {asked === undefined ? 'It was given no message.' : `“${visible(shorten(asked, messageCharactersMax))}”`}
      </p>
      {failure !== undefined && <ErrorNote error={new Error(failure)} />}
      {activity === 'starting' ? (
        <Loading label={`${label} boots`} />
      ) : (
        <div className="flex flex-col has-[iframe]:h-80">
          <SessionPreview session={info} version={turnsEnded} />
        </div>
      )}
      {answer !== undefined && (
        <div
          role="group"
          aria-label={`What ${label} has said last`}
          tabIndex={0}
          className="max-h-40 overflow-y-auto rounded-md bg-panel px-3 py-2"
        >
          <BoundedText text={answer} charsMax={textCharactersMax}>
            {(shown) => <Markdown text={shown} />}
          </BoundedText>
        </div>
      )}
      <Changes session={session} turn={turn} info={info} label={label} />
      <p className="text-[13px] text-soft">
        {formatCount(usage.inputTokens)} + {formatCount(usage.outputTokens)} tokens{cost}
      </p>
    </>
  )
}

/** Against the point where it began, or against the source as it is now where that point is not kept. */
function Changes({
  session,
  turn,
  info,
  label,
}: {
  session: SessionInfo
  turn: TurnInfo
  info: SessionInfo
  label: string
}): ReactNode {
  const against = turn.checkpoint?.id ?? session.id
  const isSettled = info.activity !== 'starting' && info.activity !== 'working'
  const changes = useQuery({
    queryKey: ['session', info.id, 'diff', against],
    enabled: isSettled,
    queryFn: ({ signal }) => sessionOf(info).diff(against, { signal }),
  })
  if (changes.isError) return <ErrorNote error={changes.error} onRetry={() => void changes.refetch()} />
  if (changes.data === undefined)
    return isSettled ? (
      <Loading label={`Comparing ${label}`} rows={1} />
    ) : (
      <p className="text-[13px] text-soft">Its changes are compared when its turn has ended.</p>
    )
  const { files, isCut } = changes.data
  if (files.length === 0) return <p className="text-[13px] text-soft">It has changed no file.</p>
  return (
    <ComparisonView
      key={changes.dataUpdatedAt}
      className="max-h-80"
      label={`Files changed by ${label}`}
      files={files}
      isPartial={isCut}
      loadPatch={() => sessionOf(info).patchStream(against)}
    />
  )
}
