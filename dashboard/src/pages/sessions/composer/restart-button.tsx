import { useQueryClient } from '@tanstack/react-query'
import type { SessionInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { Button } from '../../../ui/button.tsx'
import { SelectField } from '../../../ui/field.tsx'
import { FormDialog } from '../../../ui/form-dialog.tsx'
import { formatTime } from '../../../lib/format.ts'
import { useTimeline } from '../travel/use-timeline.ts'
import { sessionKey, sessionOf } from '../use-session.ts'

/** Goes on in a new sandbox after the loss of its own. */
export function RestartButton({ session }: { session: SessionInfo }): ReactNode {
  const [isOpen, setOpen] = useState(false)
  const may = useMay()
  if (!may('session:write')) return null
  return (
    <>
      <Button size="small" onClick={() => setOpen(true)}>
        Restart …
      </Button>
      {isOpen && <RestartDialog session={session} onClose={() => setOpen(false)} />}
    </>
  )
}

function RestartDialog({ session, onClose }: { session: SessionInfo; onClose: () => void }): ReactNode {
  const queries = useQueryClient()
  const { turns } = useTimeline(session)
  const points = turns.flatMap(({ checkpoint, message, left }) =>
    checkpoint === null || left ? [] : [{ ...checkpoint, message }],
  )
  const newest = points.at(-1)?.id ?? ''
  const [chosen, setChosen] = useState<string>()
  const checkpointId = chosen ?? newest
  const { id, userId } = session
  return (
    <FormDialog
      title="Restart the session"
      description="It gets a new sandbox, with another id and preview address. Messages that wait go to it."
      isOpen
      onOpenChange={onClose}
      action="Restart"
      onSubmit={async () => {
        await sessionOf(session).restart(checkpointId === '' ? {} : { checkpointId })
        await queries.invalidateQueries({ queryKey: sessionKey(id) })
        onClose()
      }}
      commands={{
        cli: `atoll session restart ${id}${checkpointId === '' ? '' : ` --checkpoint ${checkpointId}`}`,
        curl: {
          path: `/v1/sessions/${id}/restart`,
          json: { user_id: userId, ...(checkpointId === '' ? {} : { checkpoint_id: checkpointId }) },
        },
        sdk: `await session.restart(${checkpointId === '' ? '' : `{ checkpointId: '${checkpointId}' }`})`,
      }}
    >
      <SelectField
        label="Begin from"
        hint="With a checkpoint the agent knows what was said by then; an empty sandbox knows nothing."
        value={checkpointId}
        onChange={({ target }) => setChosen(target.value)}
      >
        {points.toReversed().map((point) => (
          <option key={point.id} value={point.id}>
            {formatTime(point.createdAt)}: after “{point.message.slice(0, 60)}”
          </option>
        ))}
        <option value="">an empty sandbox</option>
      </SelectField>
    </FormDialog>
  )
}
