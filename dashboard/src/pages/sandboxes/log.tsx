import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { EventInfo } from 'atoll-sdk'
import { useState, type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { nounOf, phraseOf } from '../../events/sentence.ts'
import { formatCount, formatTime } from '../../lib/format.ts'
import { useEvents } from '../../live/live.tsx'
import { Button } from '../../ui/button.tsx'
import { CommandHint } from '../../ui/commands.tsx'
import { JsonText } from '../../ui/json-text.tsx'
import { EmptyState, ErrorNote, Loading } from '../../ui/states.tsx'

/** Events that are kept, the newest; of these a part is drawn at first. */
const keptMax = 1000
const drawnStep = 100

interface Kept {
  /** Oldest first. */
  events: readonly EventInfo[]
  /** Older ones than these were left out. */
  isCut: boolean
}

/** What has happened to a sandbox, and what happens. */
export function SandboxLog({ sandboxId }: { sandboxId: string }): ReactNode {
  const queries = useQueryClient()
  const [drawnMax, setDrawnMax] = useState(drawnStep)
  // Not below the key of the sandbox: the whole log would be read anew for each event.
  const queryKey = ['log', sandboxId]
  const { data, error, refetch } = useQuery({
    queryKey,
    staleTime: 0,
    queryFn: ({ signal }) => readLog(sandboxId, signal),
  })
  useEvents((event) => {
    if (event.sandboxId !== sandboxId && event.subject !== sandboxId) return
    queries.setQueryData<Kept>(queryKey, (kept) => kept && withEvent(kept, event))
  })
  if (error !== null) return <ErrorNote error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading label="Loading the log" rows={6} />
  const newestFirst = data.events.toReversed()
  const left = newestFirst.length - drawnMax
  return (
    <>
      <div className="flex items-center gap-2">
        <p className="text-soft">
          Newest first{data.isCut && `; the newest ${formatCount(keptMax)} are shown, older ones are not`}.
        </p>
        <div className="ml-auto">
          <CommandHint
            commands={{
              cli: `atoll events --follow --sandbox ${sandboxId}`,
              curl: { path: `/api/events?sandbox=${sandboxId}` },
              sdk: `for await (const event of client.events({ sandbox: '${sandboxId}' })) console.log(event)`,
            }}
          />
        </div>
      </div>
      {newestFirst.length === 0 && (
        <EmptyState title="Nothing is known">Events of it were deleted after their time.</EmptyState>
      )}
      {newestFirst.length > 0 && (
        <ol className="divide-y rounded-lg border bg-raised">
          {newestFirst.slice(0, drawnMax).map((event) => (
            <Entry key={event.number} event={event} isOfSandbox={event.type.startsWith('sandbox.')} />
          ))}
        </ol>
      )}
      {left > 0 && (
        <Button className="self-center" onClick={() => setDrawnMax(drawnMax + drawnStep)}>
          Show {formatCount(Math.min(left, drawnStep))} older ones
        </Button>
      )}
    </>
  )
}

function Entry({ event, isOfSandbox }: { event: EventInfo; isOfSandbox: boolean }): ReactNode {
  const [isOpen, setOpen] = useState(false)
  const { number, ts, subject, actor, type } = event
  return (
    <li className="px-4 py-2">
      <div className="flex flex-wrap items-baseline gap-x-3">
        <time dateTime={ts} className="text-[13px] text-soft tabular-nums">
          {formatTime(ts)}
        </time>
        <span className="min-w-0 flex-1 basis-60 [overflow-wrap:anywhere]">
          {isOfSandbox ? 'It' : nounOf(event)} <bdi>{phraseOf(event)}</bdi>
          {!isOfSandbox && event.data['name'] === undefined && (
            <span className="font-mono text-[13px] text-soft"> {subject}</span>
          )}
        </span>
        <span className="text-[13px] text-soft">{actor.type === 'key' ? (actor.id ?? 'a key') : actor.type}</span>
        <Button
          size="small"
          look="quiet"
          aria-expanded={isOpen}
          aria-label={`Event ${number} as JSON`}
          onClick={() => setOpen(!isOpen)}
        >
          JSON
        </Button>
      </div>
      {isOpen && <JsonText className="mt-2" label={`Event ${number}, ${type}`} value={event} />}
    </li>
  )
}

async function readLog(sandbox: string, signal: AbortSignal): Promise<Kept> {
  const events: EventInfo[] = []
  let isCut = false
  for await (const event of client.events({ sandbox, follow: false, signal })) {
    events.push(event)
    if (events.length < 2 * keptMax) continue
    events.splice(0, keptMax)
    isCut = true
  }
  isCut ||= events.length > keptMax
  return { events: events.slice(-keptMax), isCut }
}

function withEvent({ events, isCut }: Kept, event: EventInfo): Kept {
  if (event.number <= (events.at(-1)?.number ?? 0)) return { events, isCut }
  return { events: [...events.slice(1 - keptMax), event], isCut: isCut || events.length >= keptMax }
}
