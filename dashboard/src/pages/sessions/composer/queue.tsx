import { useMutation, useQueryClient } from '@tanstack/react-query'
import type { Message, SessionInfo } from 'atoll-sdk'
import { X } from 'lucide-react'
import type { ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { IconButton } from '../../../ui/button.tsx'
import { ErrorNote } from '../../../ui/states.tsx'
import { inOneLine } from '../conversation/tool-input.ts'
import { plainText } from '../conversation/plain-text.ts'
import { sessionKey, sessionOf } from '../use-session.ts'

/** Messages that wait for the agent; each can be taken back until its turn begins. */
export function Queue({ session, messages }: { session: SessionInfo; messages: readonly Message[] }): ReactNode {
  const queries = useQueryClient()
  const may = useMay()
  const cancel = useMutation({
    mutationFn: (messageId: string) => sessionOf(session).cancelMessage(messageId),
    onSettled: () => queries.invalidateQueries({ queryKey: sessionKey(session.id) }),
  })
  if (messages.length === 0 && !cancel.isError) return null
  return (
    <section aria-label="Messages that wait" className="flex flex-col gap-1">
      {messages.length > 0 && (
        <>
          <p className="text-xs font-medium text-soft">
            {messages.length === 1 ? '1 message waits' : `${messages.length} messages wait`}
          </p>
          <ol className="flex max-h-32 flex-col gap-1 overflow-y-auto">
            {messages.map(({ id, content }) => (
              <li key={id} className="flex items-center gap-2 rounded-md border border-dashed pl-3">
                <bdi className="min-w-0 flex-1 truncate" title={plainText(content.slice(0, 1000))}>
                  {inOneLine(plainText(content))}
                </bdi>
                {may('session:write') && (
                  <IconButton
                    label={`Take back “${inOneLine(content).slice(0, 40)}”`}
                    icon={<X aria-hidden="true" className="size-4" />}
                    isBusy={cancel.isPending && cancel.variables === id}
                    onClick={() => cancel.mutate(id)}
                  />
                )}
              </li>
            ))}
          </ol>
        </>
      )}
      {cancel.isError && <ErrorNote error={cancel.error} />}
    </section>
  )
}
