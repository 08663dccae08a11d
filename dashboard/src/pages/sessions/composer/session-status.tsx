import { useMutation, useQueryClient } from '@tanstack/react-query'
import type { SessionEvent, SessionInfo } from 'atoll-sdk'
import { LoaderCircle, OctagonPause } from 'lucide-react'
import type { ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { useNow } from '../../../lib/clock.ts'
import { formatSeconds } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { cx } from '../../../ui/cx.ts'
import { ErrorNote } from '../../../ui/states.tsx'
import { plainText } from '../conversation/plain-text.ts'
import { sessionKey, sessionOf } from '../use-session.ts'
import { RestartButton } from './restart-button.tsx'

/** What the agent is at, and what a person can do about it. */
export function SessionStatus({ session }: { session: SessionInfo }): ReactNode {
  const { activity, events } = session
  const newest = events.at(-1)
  const shortage = shortageOf(newest)
  switch (activity) {
    case 'starting':
      return (
        <Strip tone={shortage === undefined ? 'plain' : 'warn'} isMoving>
          <span className="min-w-0 flex-1 break-words">
            {shortage ?? `${isBooted(session) ? 'The agent starts' : 'The sandbox boots'}.`}{' '}
            <Since time={newest?.createdAt} />
          </span>
          <InterruptButton session={session} />
        </Strip>
      )
    case 'working':
      return (
        <Strip tone={shortage === undefined ? 'plain' : 'warn'} isMoving>
          <span className="min-w-0 flex-1 break-words">
            {shortage ?? 'The agent works.'}{' '}
            <Since time={events.findLast(({ type }) => type === 'turn_started')?.createdAt} />
          </span>
          <InterruptButton session={session} />
        </Strip>
      )
    case 'paused':
      return <Strip tone="warn">The budget is spent. Raise it under “Usage”, and the session goes on.</Strip>
    case 'failed':
      return (
        <Strip tone="bad">
          <span className="min-w-0 flex-1 break-words">
            {plainText(events.findLast(({ type }) => type === 'session_failed')?.message ?? 'The session has failed.')}{' '}
            The next message tries again; if its sandbox is lost, restart it.
          </span>
          <RestartButton session={session} />
        </Strip>
      )
    case 'idle':
    case 'ended':
      return (
        <div role="status" className="sr-only">
          {activity === 'idle' ? 'The agent waits for a message.' : 'The session has ended.'}
        </div>
      )
  }
}

/** What the session waits for, told with the type of the step that it could not leave. */
function shortageOf(newest: SessionEvent | undefined): string | undefined {
  if (newest?.level !== 'warning') return undefined
  const isStep = ['session_started', 'sandbox_ready', 'sandbox_hibernated'].includes(newest.type)
  return isStep ? plainText(newest.message) : undefined
}

const tones = { plain: 'bg-panel', warn: 'bg-warn-faint text-warn', bad: 'bg-bad-faint text-bad' }

function Strip({
  tone,
  isMoving = false,
  children,
}: {
  tone: keyof typeof tones
  isMoving?: boolean
  children: ReactNode
}): ReactNode {
  return (
    <div role="status" className={cx('flex flex-wrap items-center gap-2 rounded-md py-1 pr-1 pl-3', tones[tone])}>
      {isMoving && <LoaderCircle aria-hidden="true" className="size-4 shrink-0 animate-spin" />}
      {children}
    </div>
  )
}

/** Not read aloud: it changes each second. */
function Since({ time }: { time: string | undefined }): ReactNode {
  const now = useNow()
  if (time === undefined) return null
  const seconds = Math.floor((now - Date.parse(time)) / 1000)
  return (
    <span aria-hidden="true" className="text-soft tabular-nums">
      {seconds > 0 && formatSeconds(seconds)}
    </span>
  )
}

function isBooted({ events }: SessionInfo): boolean {
  const begun = events.findLastIndex(({ type }) => type === 'session_started')
  return events.slice(begun).some(({ type }) => type === 'sandbox_ready' || type === 'sandbox_resumed')
}

function InterruptButton({ session }: { session: SessionInfo }): ReactNode {
  const queries = useQueryClient()
  const may = useMay()
  const { id, userId } = session
  const interrupt = useMutation({
    mutationFn: () => sessionOf(session).interrupt(),
    onSettled: () => queries.invalidateQueries({ queryKey: sessionKey(id) }),
  })
  if (!may('session:write')) return null
  return (
    <>
      <Button size="small" isBusy={interrupt.isPending} onClick={() => interrupt.mutate()}>
        <OctagonPause aria-hidden="true" className="size-4" /> Interrupt
      </Button>
      <CommandHint
        label="Show the interrupt as a command"
        commands={{
          cli: `atoll session interrupt ${id}`,
          curl: { path: `/v1/sessions/${id}/interrupt`, json: { user_id: userId } },
          sdk: 'await session.interrupt()',
        }}
      />
      {interrupt.isError && (
        <div className="w-full">
          <ErrorNote error={interrupt.error} />
        </div>
      )}
    </>
  )
}
