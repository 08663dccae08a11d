import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import type { SessionInfo, TurnInfo } from 'atoll-sdk'
import { GitBranchPlus } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { CommandHint, quoted } from '../../../ui/commands.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { ErrorNote } from '../../../ui/states.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { sessionOf } from '../use-session.ts'
import { NameField } from '../name-field.tsx'

interface ForkDialogProps {
  session: SessionInfo
  turn: TurnInfo
  place: number
}

/** Begins another session at the end of a turn, and goes there. */
export function ForkDialog({ session, turn, place }: ForkDialogProps): ReactNode {
  const [isOpen, setOpen] = useState(false)
  const [name, setName] = useState('')
  const navigate = useNavigate()
  const queries = useQueryClient()
  const toast = useToast()
  const { messageId, lastEvent } = turn
  const fork = useMutation({
    mutationFn: () => sessionOf(session).fork({ at: { messageId }, ...(name === '' ? {} : { name }) }),
    onSuccess: async (made) => {
      setOpen(false)
      const { forkedAt } = made
      if (forkedAt?.exact === false)
        toast({
          tone: 'warn',
          text: `No checkpoint of this very point is kept: the fork begins after event ${forkedAt.afterEvent}.`,
        })
      void queries.invalidateQueries({ queryKey: ['session', session.id, 'timeline'] })
      await navigate({ to: '/sessions/$sessionId', params: { sessionId: made.id } })
    },
  })
  return (
    <>
      <Button size="small" onClick={() => setOpen(true)}>
        <GitBranchPlus aria-hidden="true" className="size-4" /> Fork from here
      </Button>
      <Dialog
        title={`Fork from the end of turn ${place}`}
        description="A session of its own goes on from this point. This one stays as it is."
        isOpen={isOpen}
        onOpenChange={setOpen}
      >
        <form
          className="flex flex-col gap-4"
          onSubmit={(event) => {
            event.preventDefault()
            fork.mutate()
          }}
        >
          {turn.checkpoint === null && (
            <p className="rounded-md bg-warn-faint px-3 py-2 text-warn">
              No checkpoint of this turn is kept: the fork begins at the one before.
            </p>
          )}
          <NameField value={name} onChange={setName} />
          {fork.isError && <ErrorNote error={fork.error} />}
          <div className="flex items-center justify-end gap-2">
            <span className="mr-auto">
              <CommandHint
                commands={{
                  cli: `atoll session fork ${quoted(session.name ?? session.id)} --at ${lastEvent ?? messageId}${name === '' ? '' : ` --name ${quoted(name)}`}`,
                  curl: {
                    method: 'POST',
                    path: `/v1/sessions/${session.id}/fork`,
                    json: { user_id: session.userId, at: { message_id: messageId }, ...(name === '' ? {} : { name }) },
                  },
                  sdk: `const fork = await session.fork({ at: { messageId: '${messageId}' } })`,
                }}
              />
            </span>
            <Button onClick={() => setOpen(false)}>Cancel</Button>
            <Button type="submit" look="primary" isBusy={fork.isPending}>
              Fork
            </Button>
          </div>
        </form>
      </Dialog>
    </>
  )
}
