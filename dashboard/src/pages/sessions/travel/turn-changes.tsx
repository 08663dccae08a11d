import { useQueryClient } from '@tanstack/react-query'
import { Sandbox, type SessionInfo, type TurnInfo } from 'atoll-sdk'
import { useEffect, useEffectEvent, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { client } from '../../../account/client.ts'
import { ComparisonView } from '../../../diff/comparison-view.tsx'
import { serverNow } from '../../../lib/clock.ts'
import { Button } from '../../../ui/button.tsx'
import { EmptyState } from '../../../ui/states.tsx'
import { sinceQuery } from './since-changes.tsx'

/** Files are counted in the background soon after a turn, which no event tells: they are looked for once more. */
const countedMs = 3000
const freshMs = 60_000

interface TurnChangesProps {
  session: SessionInfo
  turn: TurnInfo
  turns: readonly TurnInfo[]
  onRefresh: () => void
}

/** The files that a turn has changed. Their lines are those between its checkpoint and that of the turn before. */
export function TurnChanges({ session, turn, turns, onRefresh }: TurnChangesProps): ReactNode {
  const may = useMay()
  const queries = useQueryClient()
  const { files, endedAt, checkpoint, messageId } = turn
  const isFresh = files === null && endedAt !== null && serverNow() - Date.parse(endedAt) < freshMs
  const look = useEffectEvent(onRefresh)
  useEffect(() => {
    if (!isFresh) return
    const timer = setTimeout(() => look(), countedMs)
    return () => clearTimeout(timer)
  }, [isFresh])
  if (endedAt === null) return <EmptyState title="The turn runs">Its changes are known when it has ended.</EmptyState>
  if (files === null)
    return (
      <EmptyState
        title="What this turn has changed is not known"
        actions={<Button onClick={onRefresh}>Look again</Button>}
      >
        {isFresh
          ? 'It is counted in the background, a moment after the turn.'
          : 'It is known only with a checkpoint at the end of this turn and of the one before.'}
      </EmptyState>
    )
  if (files.files.length === 0) return <EmptyState title="This turn has changed no file of the working folder" />
  const before = turns.find((one) => one.messageId === turn.parentMessageId)?.checkpoint
  const canRead = before && checkpoint && may('sandbox:read')
  const loadPatch = async () => {
    const { folder } = await queries.ensureQueryData(sinceQuery(session, messageId))
    const sandbox = await Sandbox.connect(session.sandboxId, { client })
    return await sandbox.patchStream({ from: before?.id ?? '', to: checkpoint?.id, folder })
  }
  return (
    <ComparisonView
      key={messageId}
      className="flex-1"
      label="Files changed in this turn"
      files={files.files}
      isPartial={files.isCut}
      loadPatch={canRead ? loadPatch : undefined}
    />
  )
}
