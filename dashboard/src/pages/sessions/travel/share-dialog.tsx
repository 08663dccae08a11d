import { useMutation, useQueryClient } from '@tanstack/react-query'
import type { SessionInfo } from 'atoll-sdk'
import { Share2 } from 'lucide-react'
import { cloneElement, useState, type ReactElement, type ReactNode } from 'react'
import { formatTime } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'
import { CommandHint, quoted } from '../../../ui/commands.tsx'
import { CodeLine } from '../../../ui/copy.tsx'
import { Dialog } from '../../../ui/dialog.tsx'
import { SelectField } from '../../../ui/field.tsx'
import { ErrorNote } from '../../../ui/states.tsx'
import { CapsuleList } from './capsule-list.tsx'
import { sessionOf } from '../use-session.ts'

type Scope = 'read' | 'fork'

const expiries: readonly (readonly [seconds: number, label: string, flag: string])[] = [
  [3600, 'In an hour', '1h'],
  [86_400, 'In a day', '1d'],
  [604_800, 'In seven days', '7d'],
  [2_592_000, 'In thirty days', '30d'],
  [31_536_000, 'In a year', '365d'],
]
const expiryDefault = 604_800

interface ShareDialogProps {
  session: SessionInfo
  /** Number of the newest event that is shown. Absent: the newest one of the session. */
  eventId?: number
  /** The button that opens it. */
  trigger?: ReactElement<{ onClick?: () => void }>
}

/** Makes a link under which a moment of a session is read without a key, and lists those that work. */
export function ShareDialog({ session, eventId, trigger }: ShareDialogProps): ReactNode {
  const [isOpen, setOpen] = useState(false)
  const open = () => setOpen(true)
  return (
    <>
      {trigger === undefined ? (
        <Button size="small" onClick={open}>
          <Share2 aria-hidden="true" className="size-4" /> Share
        </Button>
      ) : (
        cloneElement(trigger, { onClick: open })
      )}
      <Dialog
        title="Share a moment of this session"
        description={`Whoever has the link reads what was said and done up to ${eventId === undefined ? 'now' : `event ${eventId}`}, as it is. Read it before you share it.`}
        isOpen={isOpen}
        onOpenChange={setOpen}
      >
        {isOpen && (
          <div className="flex flex-col gap-5">
            <ShareForm session={session} {...(eventId === undefined ? {} : { eventId })} />
            <CapsuleList session={session} />
          </div>
        )}
      </Dialog>
    </>
  )
}

function ShareForm({ session, eventId }: Omit<ShareDialogProps, 'trigger'>): ReactNode {
  const [scope, setScope] = useState<Scope>('read')
  const [expiresInSeconds, setExpires] = useState(expiryDefault)
  const queries = useQueryClient()
  const share = useMutation({
    // The link is kept in this dialog alone.
    gcTime: 0,
    mutationFn: () => sessionOf(session).capsules.create({ scope, eventId, expiresInSeconds }),
    onSuccess: () => queries.invalidateQueries({ queryKey: ['session', session.id, 'capsules'] }),
  })
  const flag = expiries.find(([seconds]) => seconds === expiresInSeconds)?.[2] ?? '7d'
  if (share.data !== undefined) {
    const { token, expiresAt, exact } = share.data
    return (
      <div className="flex flex-col gap-2">
        <p className="font-medium">The link, which is shown this once:</p>
        <CodeLine label="Copy the link" text={`${location.origin}/capsules/${token}`} />
        <p className="text-[13px] text-soft">It works until {formatTime(expiresAt)}.</p>
        {exact === false && (
          <p className="text-[13px] text-warn">
            No checkpoint of this very moment is kept: sessions that are begun from the link begin at an earlier one.
          </p>
        )}
        <Button className="self-start" onClick={() => share.reset()}>
          Make another link
        </Button>
      </div>
    )
  }
  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault()
        share.mutate()
      }}
    >
      <SelectField
        label="Whoever has the link"
        value={scope}
        onChange={({ target }) => setScope(target.value === 'fork' ? 'fork' : 'read')}
        hint={
          scope === 'fork'
            ? 'A key of this organisation begins sessions with the disk of that moment: files, the agent’s conversation and variables that are not secret.'
            : 'Nothing of users, sandbox, preview, keys and secrets is shown, but texts are not read through.'
        }
      >
        <option value="read">may read it</option>
        <option value="fork">may read it, and with a key begin sessions from it</option>
      </SelectField>
      <SelectField
        label="The link stops working"
        value={expiresInSeconds}
        onChange={({ target }) => setExpires(Number(target.value))}
      >
        {expiries.map(([seconds, label]) => (
          <option key={seconds} value={seconds}>
            {label}
          </option>
        ))}
      </SelectField>
      {share.isError && <ErrorNote error={share.error} />}
      <div className="flex items-center gap-2">
        <Button type="submit" look="primary" isBusy={share.isPending}>
          Make a link
        </Button>
        <span className="ml-auto">
          <CommandHint
            commands={{
              cli: `atoll session share ${quoted(session.name ?? session.id)}${eventId === undefined ? '' : ` --event ${eventId}`} --scope ${scope} --expires ${flag}`,
              curl: {
                method: 'POST',
                path: `/v1/sessions/${session.id}/capsules`,
                json: {
                  user_id: session.userId,
                  scope,
                  expires_in: expiresInSeconds,
                  ...(eventId === undefined ? {} : { event_id: eventId }),
                },
              },
              sdk: `const { url } = await session.capsules.create({ scope: '${scope}'${eventId === undefined ? '' : `, eventId: ${eventId}`}, expiresInSeconds: ${expiresInSeconds} })`,
            }}
          />
        </span>
      </div>
    </form>
  )
}
