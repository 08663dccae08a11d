import type { SessionInfo, TurnInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { CommandHint } from '../../../ui/commands.tsx'
import { SelectField } from '../../../ui/field.tsx'
import { EmptyState } from '../../../ui/states.tsx'
import { SinceChanges } from '../travel/since-changes.tsx'
import { TurnChanges } from '../travel/turn-changes.tsx'
import { useTimeline } from '../travel/use-timeline.ts'

const newestTurn = 'newest'
const messageMax = 60

/** How the files of the session differ, as git sees them: in its newest turn, or since the end of an earlier one. */
export function Changes({ session, turns }: { session: SessionInfo; turns: readonly TurnInfo[] }): ReactNode {
  const [chosen, setChosen] = useState(newestTurn)
  const { refresh } = useTimeline(session)
  const ended = turns.filter(({ left, endedAt }) => !left && endedAt !== null)
  const newest = ended.at(-1)
  if (newest === undefined)
    return <EmptyState title="No turn has ended yet">What it changes is compared then.</EmptyState>
  const earlier = ended.slice(0, -1)
  const since = earlier.find(({ messageId }) => messageId === chosen)
  const against = since ?? earlier.at(-1)
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-3">
      <div className="flex items-end gap-2">
        <div className="min-w-0 flex-1">
          <SelectField
            label="Changed"
            value={since?.messageId ?? newestTurn}
            onChange={({ target }) => setChosen(target.value)}
          >
            <option value={newestTurn}>in the newest turn</option>
            {earlier.toReversed().map(({ messageId, message }) => (
              <option key={messageId} value={messageId}>
                since the end of “{message.slice(0, messageMax)}”
              </option>
            ))}
          </SelectField>
        </div>
        {against !== undefined && (
          <CommandHint
            commands={{
              cli: `atoll session diff ${session.id} ${against.messageId}`,
              curl: { path: `/v1/sessions/${session.id}/diff?against=${against.messageId}` },
              sdk: `await session.patch('${against.messageId}')`,
            }}
          />
        )}
      </div>
      {since === undefined ? (
        <TurnChanges key={newest.messageId} session={session} turn={newest} turns={turns} onRefresh={refresh} />
      ) : (
        <SinceChanges key={since.messageId} session={session} turn={since} />
      )}
    </div>
  )
}
