import { useMutation, useQueryClient } from '@tanstack/react-query'
import type { SessionInfo } from 'atoll-sdk'
import { SendHorizontal } from 'lucide-react'
import { useEffect, useRef, type KeyboardEvent, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { Button } from '../../../ui/button.tsx'
import { CommandHint, quoted } from '../../../ui/commands.tsx'
import { inputLook } from '../../../ui/field.tsx'
import { cx } from '../../../ui/cx.ts'
import { ErrorNote } from '../../../ui/states.tsx'
import { useDraft } from '../composer-context.tsx'
import { sessionKey, sessionOf, waitingOf } from '../use-session.ts'
import { Queue } from './queue.tsx'
import { SessionStatus } from './session-status.tsx'

interface ComposerProps {
  session: SessionInfo
  /** Whether the conversation shows a message already, so that it does not wait. */
  isShown: (messageId: string) => boolean
}

/** The field of the next message, what waits before it, and what the agent is at. */
export function Composer({ session, isShown }: ComposerProps): ReactNode {
  const { id } = session
  const may = useMay()
  const queries = useQueryClient()
  const { text, restored, setText } = useDraft(id)
  const field = useRef<HTMLTextAreaElement>(null)
  const send = useMutation({
    mutationFn: (message: string) => sessionOf(session).send(message),
    onSuccess: async (_answer, message) => {
      if (field.current?.value === message) setText('')
      await queries.invalidateQueries({ queryKey: sessionKey(id) })
    },
  })
  useEffect(() => {
    if (restored > 0) field.current?.focus()
  }, [restored])
  const obstacle = obstacleOf(session, may('session:write'))
  const isReady = obstacle === undefined && text.trim() !== '' && !send.isPending
  const submit = () => {
    if (isReady) send.mutate(text)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    // A word that an input method is still composing is no message yet.
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return
    event.preventDefault()
    submit()
  }
  return (
    <div className="flex shrink-0 flex-col gap-2">
      <SessionStatus session={session} />
      <Queue session={session} messages={waitingOf(session).filter((message) => !isShown(message.id))} />
      {send.isError && <ErrorNote error={send.error} />}
      {obstacle === undefined ? (
        <form
          className="flex items-end gap-2"
          onSubmit={(event) => {
            event.preventDefault()
            submit()
          }}
        >
          <textarea
            ref={field}
            aria-label="Message to the agent"
            aria-keyshortcuts="Enter"
            placeholder="Message to the agent"
            dir="auto"
            value={text}
            rows={1}
            onChange={({ target }) => setText(target.value)}
            onKeyDown={onKeyDown}
            className={cx(inputLook, 'field-sizing-content h-auto max-h-52 min-h-10 resize-none py-2')}
          />
          <Button type="submit" look="primary" className="h-10" isBusy={send.isPending} disabled={!isReady}>
            <SendHorizontal aria-hidden="true" className="size-4" />
            <span className="max-sm:sr-only">Send</span>
          </Button>
          <span className="flex h-10 items-center">
            <CommandHint
              label="Show the message as a command"
              commands={{
                cli: `atoll session send --wait ${id} ${quoted(text === '' ? 'Add sea turtles' : text)}`,
                curl: {
                  path: `/v1/sessions/${id}/messages`,
                  json: { message: text === '' ? 'Add sea turtles' : text, user_id: session.userId },
                },
                sdk: `await session.send(${JSON.stringify(text === '' ? 'Add sea turtles' : text)})`,
              }}
            />
          </span>
        </form>
      ) : (
        <p className="rounded-md bg-panel px-3 py-2 text-soft">{obstacle}</p>
      )}
    </div>
  )
}

/** Why nothing can be sent. */
function obstacleOf({ status }: SessionInfo, mayWrite: boolean): string | undefined {
  if (status === 'ended') return 'The session has ended. Fork it to go on from where it was.'
  return mayWrite ? undefined : 'This key may read sessions and not write to them.'
}
