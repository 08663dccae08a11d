import { useNavigate } from '@tanstack/react-router'
import type { SessionInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { quoted } from '../../ui/commands.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { useToast } from '../../ui/toasts.tsx'
import { useTimeline } from './travel/use-timeline.ts'
import { sessionOf } from './use-session.ts'
import { NameField } from './name-field.tsx'

/** Begins another session that goes on from here: of an idle one from its present, otherwise from the end of its newest turn. */
export function ForkPresentDialog({ session, onClose }: { session: SessionInfo; onClose: () => void }): ReactNode {
  const { id, userId, activity } = session
  const [name, setName] = useState('')
  const navigate = useNavigate()
  const toast = useToast()
  const { turns } = useTimeline(session)
  const isIdle = activity === 'idle'
  const newest = turns.findLast(({ left, endedAt }) => !left && endedAt !== null)
  const messageId = isIdle ? undefined : newest?.messageId
  const named = name === '' ? {} : { name }
  const at = messageId === undefined ? {} : { at: { messageId } }
  return (
    <FormDialog
      title={isIdle ? 'Fork the session' : 'Fork from the end of its newest turn'}
      description="A session of its own goes on from there, with its own sandbox and budget. This one stays as it is."
      isOpen
      onOpenChange={onClose}
      action="Fork"
      isReady={isIdle || messageId !== undefined}
      onSubmit={async () => {
        const fork = await sessionOf(session).fork({ ...named, ...at })
        if (fork.forkedAt?.exact === false)
          toast({
            tone: 'warn',
            text: `No checkpoint of that point is kept: the fork begins after event ${fork.forkedAt.afterEvent}.`,
          })
        onClose()
        await navigate({ to: '/sessions/$sessionId', params: { sessionId: fork.id } })
      }}
      commands={{
        cli: `atoll session fork ${id}${messageId === undefined ? '' : ` --at ${messageId}`}${name === '' ? '' : ` --name ${quoted(name)}`}`,
        curl: {
          path: `/v1/sessions/${id}/fork`,
          json: { user_id: userId, ...named, ...(messageId === undefined ? {} : { at: { message_id: messageId } }) },
        },
        sdk: `const fork = await session.fork(${JSON.stringify({ ...named, ...at })})`,
      }}
    >
      {!isIdle && messageId === undefined && (
        <p className="rounded-md bg-warn-faint px-3 py-2 text-warn">
          No turn has ended yet, and a session can be forked at its present only while it is idle.
        </p>
      )}
      <NameField value={name} onChange={setName} />
    </FormDialog>
  )
}
