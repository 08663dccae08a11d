import { useMutation, useQuery } from '@tanstack/react-query'
import type { RewindOptions, RewoundInfo, SessionInfo, TurnInfo } from 'atoll-sdk'
import { History } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { Button } from '../../../ui/button.tsx'
import { CommandHint, quoted } from '../../../ui/commands.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { RewindChanges } from './rewind-changes.tsx'
import { sessionOf } from '../use-session.ts'

type What = NonNullable<RewindOptions['what']>

const choices: readonly { what: What; label: string; about: string }[] = [
  { what: 'all', label: 'Everything', about: 'Files, processes and the conversation go back.' },
  { what: 'machine', label: 'The machine', about: 'Files and processes go back. The agent knows what was said since.' },
  {
    what: 'conversation',
    label: 'The conversation',
    about: 'The agent forgets what was said since. Files and processes stay.',
  },
]

interface RewindDialogProps {
  session: SessionInfo
  turn: TurnInfo
  turns: readonly TurnInfo[]
  place: number
  onRewound: (rewound: RewoundInfo) => void
}

/** Takes a session back, or forward, to the end of a turn, after it has shown what would change. */
export function RewindDialog({ session, turn, turns, place, onRewound }: RewindDialogProps): ReactNode {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <Button size="small" onClick={() => setOpen(true)}>
        <History aria-hidden="true" className="size-4" /> Rewind to here
      </Button>
      <Dialog
        title={`Rewind to the end of turn ${place}`}
        description="It happens in place and can be undone. Volumes, secrets and what was sent over the network are not taken back."
        isOpen={isOpen}
        onOpenChange={setOpen}
        size="wide"
      >
        {isOpen && (
          <RewindForm
            {...{ session, turn, turns }}
            onCancel={() => setOpen(false)}
            onRewound={(rewound) => {
              setOpen(false)
              onRewound(rewound)
            }}
          />
        )}
      </Dialog>
    </>
  )
}

interface RewindFormProps extends Pick<RewindDialogProps, 'session' | 'turn' | 'turns' | 'onRewound'> {
  onCancel: () => void
}

function RewindForm({ session, turn, turns, onCancel, onRewound }: RewindFormProps): ReactNode {
  const [what, setWhat] = useState<What>('all')
  const { messageId, lastEvent } = turn
  const preview = useQuery({
    queryKey: ['session', session.id, 'rewind', messageId, what],
    gcTime: 0,
    queryFn: ({ signal }) => sessionOf(session).previewRewind({ to: { messageId }, what, signal }),
  })
  const rewind = useMutation({
    mutationFn: () => sessionOf(session).rewind({ to: { messageId }, what }),
    onSuccess: onRewound,
  })
  const name = quoted(session.name ?? session.id)
  const whatFlag = what === 'all' ? '' : ` --what ${what}`
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault()
        rewind.mutate()
      }}
    >
      <fieldset className="grid gap-2 sm:grid-cols-3">
        <legend className="sr-only">What goes back</legend>
        {choices.map((choice) => (
          <label
            key={choice.what}
            className="flex cursor-pointer gap-2 rounded-md border p-3 has-checked:border-accent has-checked:bg-accent-faint"
          >
            <input
              type="radio"
              name="what"
              className="mt-1 size-4 accent-accent"
              checked={what === choice.what}
              onChange={() => setWhat(choice.what)}
            />
            <span>
              <span className="font-medium">{choice.label}</span>
              <span className="block text-[13px] text-soft">{choice.about}</span>
            </span>
          </label>
        ))}
      </fieldset>
      {preview.isError ? (
        <ErrorNote error={preview.error} onRetry={() => void preview.refetch()} />
      ) : preview.data === undefined ? (
        <Loading label="Looking what would change" />
      ) : (
        <RewindChanges preview={preview.data} what={what} turns={turns} turn={turn} />
      )}
      {rewind.isError && <ErrorNote error={rewind.error} />}
      <div className="flex flex-wrap items-center justify-end gap-2">
        <span className="mr-auto">
          <CommandHint
            commands={{
              cli: `atoll session rewind ${name} ${lastEvent ?? messageId}${whatFlag}`,
              curl: {
                method: 'POST',
                path: `/v1/sessions/${session.id}/rewind`,
                json: { user_id: session.userId, to: { message_id: messageId }, what },
              },
              sdk: `await session.rewind({ to: { messageId: '${messageId}' }, what: '${what}' })`,
            }}
          />
        </span>
        <Button onClick={onCancel}>Cancel</Button>
        <Button type="submit" look="primary" isBusy={rewind.isPending} disabled={preview.data === undefined}>
          Rewind
        </Button>
      </div>
    </form>
  )
}
