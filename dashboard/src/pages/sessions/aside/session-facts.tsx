import { Link } from '@tanstack/react-router'
import type { SessionEvent, SessionInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { Badge, type Tone } from '../../../ui/badge.tsx'
import { CopyButton } from '../../../ui/copy.tsx'
import { Facts, Panel } from '../../../ui/page.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { plainText } from '../conversation/plain-text.ts'

const shownMax = 100

/** What is known of the session beside its conversation. */
export function SessionFacts({ session }: { session: SessionInfo }): ReactNode {
  const { id, name, sandboxId, userId, userName, userEmail, agent, project, forkedFrom, archivedReason } = session
  const optional = (label: string, value: string | undefined): [string, ReactNode][] =>
    value === undefined || value === '' ? [] : [[label, value]]
  return (
    <div className="flex flex-col gap-4">
      <Panel title="Facts">
        <Facts
          items={[
            ['Id', <WithCopy key="id" text={id} />],
            ...optional('Name', name),
            [
              'Sandbox',
              <Link
                key="sandbox"
                to="/sandboxes/$sandboxId"
                params={{ sandboxId }}
                className="font-mono text-accent underline"
              >
                {sandboxId}
              </Link>,
            ],
            ['User', <bdi key="user">{userId}</bdi>],
            ...optional('Name of the user', userName),
            ...optional('Mail of the user', userEmail),
            ['Model', agent.model],
            [
              'Harness',
              <code key="harness" className="font-mono">
                {agent.harness}
              </code>,
            ],
            ...optional('Framework', project.framework),
            ...(forkedFrom === undefined
              ? []
              : [
                  [
                    'Forked from',
                    <Link
                      key="fork"
                      to="/sessions/$sessionId"
                      params={{ sessionId: forkedFrom }}
                      className="font-mono text-accent underline"
                    >
                      {forkedFrom}
                    </Link>,
                  ] as const,
                ]),
            ...optional('Archived', archivedReason),
            ['Created', <TimeAgo key="created" time={session.createdAt} />],
            ['Changed', <TimeAgo key="updated" time={session.updatedAt} />],
          ]}
        />
      </Panel>
      <Panel title="What has happened to it">
        <History events={session.events} />
      </Panel>
    </div>
  )
}

function WithCopy({ text }: { text: string }): ReactNode {
  return (
    <span className="-my-1.5 flex items-center gap-1">
      <code className="min-w-0 truncate font-mono">{text}</code>
      <CopyButton text={text} label="Copy the id" />
    </span>
  )
}

const tones: Record<SessionEvent['level'], Tone> = { info: 'plain', warning: 'warn', error: 'bad' }

function History({ events }: { events: readonly SessionEvent[] }): ReactNode {
  const left = events.length - shownMax
  return (
    <>
      <ol className="flex flex-col gap-1.5">
        {events
          .slice(-shownMax)
          .toReversed()
          .map(({ id, level, message, createdAt }) => (
            <li key={id} className="flex items-baseline gap-2">
              <span className="w-24 shrink-0 text-[13px] text-soft">
                <TimeAgo time={createdAt} />
              </span>
              <span className="min-w-0 break-words">
                {level !== 'info' && <Badge tone={tones[level]}>{level}</Badge>} {plainText(message)}
              </span>
            </li>
          ))}
      </ol>
      {left > 0 && <p className="mt-2 text-[13px] text-soft">{left} older entries are in the export.</p>}
    </>
  )
}
