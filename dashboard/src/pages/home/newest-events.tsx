import type { ReactNode } from 'react'
import { EventLine } from '../../events/event-line.tsx'
import { useNewestEvents } from '../../events/use-newest-events.ts'
import { CommandHint } from '../../ui/commands.tsx'
import { Panel } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'

const shownMax = 30

/** What has happened in the organisation last, as it happens. */
export function NewestEvents({ className }: { className?: string }): ReactNode {
  const { events, error, retry } = useNewestEvents(shownMax)
  return (
    <Panel
      title="What has happened"
      {...(className === undefined ? {} : { className })}
      actions={
        <CommandHint
          commands={{
            cli: 'atoll events --follow',
            curl: { path: '/api/events' },
            sdk: 'for await (const event of client.events()) console.log(event)',
          }}
        />
      }
    >
      {error !== null && <ErrorNote error={error} onRetry={retry} />}
      {events === undefined && error === null && <Loading />}
      {events?.length === 0 && <p className="text-soft">Nothing yet.</p>}
      <ol className="-my-1 flex flex-col">
        {events?.map((event) => (
          <li key={event.number} className="py-1">
            <EventLine event={event} />
          </li>
        ))}
      </ol>
    </Panel>
  )
}
