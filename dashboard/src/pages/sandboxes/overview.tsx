import { Link } from '@tanstack/react-router'
import type { SandboxInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatSeconds } from '../../lib/format.ts'
import { IdleLeft } from '../../sandboxes/idle-left.tsx'
import { nameOf } from '../../sandboxes/sandbox.ts'
import { useRefresh } from '../../sandboxes/use-sandboxes.ts'
import { CommandLines, quoted } from '../../ui/commands.tsx'
import { Facts, Panel } from '../../ui/page.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { literalOf } from '../../sandboxes/literal.ts'
import { PreviewsPanel } from './previews-panel.tsx'
import { SizePanel } from './size-panel.tsx'
import { TagsPanel } from './tags-panel.tsx'

/** What is known of a sandbox, without a call that would wake it. */
export function Overview({ info }: { info: SandboxInfo }): ReactNode {
  const { metadata, volumes, status } = info
  const facts = Object.entries(metadata)
  const isGone = status === 'stopped'
  return (
    <div className="flex flex-col gap-4 lg:flex-row lg:items-start">
      <div className="flex min-w-0 flex-1 flex-col gap-4">
        <Panel title="Facts">
          <FactList info={info} />
        </Panel>
        <TagsPanel info={info} />
        {facts.length > 0 && (
          <Panel title="Metadata">
            <Facts items={facts.map(([key, value]) => [key, <Fact key={key} name={key} value={value} />])} />
          </Panel>
        )}
        {volumes.length > 0 && <VolumesPanel volumes={volumes} />}
      </div>
      {!isGone && (
        <div className="flex min-w-0 flex-1 flex-col gap-4">
          <SizePanel info={info} />
          <PreviewsPanel info={info} />
          <Panel title="Elsewhere">
            <CommandLines
              commands={{
                cli: `atoll shell ${quoted(nameOf(info))}`,
                curl: { path: `/api/sandboxes/${nameOf(info)}` },
                sdk: `const sandbox = await Sandbox.connect(${literalOf(nameOf(info))})`,
              }}
            />
          </Panel>
        </div>
      )}
    </div>
  )
}

function VolumesPanel({ volumes }: Pick<SandboxInfo, 'volumes'>): ReactNode {
  return (
    <Panel title="Volumes">
      <Facts
        items={volumes.map(({ name, path, readOnly }) => [
          path,
          <span key={path}>
            <Link to="/volumes" className="text-accent hover:underline">
              <bdi>{name}</bdi>
            </Link>
            {readOnly && ', read only'}
          </span>,
        ])}
      />
    </Panel>
  )
}

function FactList({ info }: { info: SandboxInfo }): ReactNode {
  const { templateID, startedAt, timeout, onIdle, expiresAt, user, region, workerID } = info
  const refresh = useRefresh()
  const then = onIdle === 'stop' ? 'deleted' : 'hibernated'
  return (
    <Facts
      items={[
        ['Image', <bdi key="image">{templateID === '' ? 'none' : templateID}</bdi>],
        ['Last started', <TimeAgo key="started" time={startedAt} />],
        ['Idle timeout', timeout === 0 ? 'none: it runs on' : `${formatSeconds(timeout)}, then ${then}`],
        ['Idle left', <IdleLeft key="idle" info={info} onPast={refresh} />],
        ['Deleted', expiresAt === null ? 'never by its age' : <TimeAgo key="expires" time={expiresAt} />],
        ['Commands run as', <bdi key="user">{user ?? 'root'}</bdi>],
        ['Host', `${workerID}, ${region}`],
      ]}
    />
  )
}

/** Values of metadata that name what this page can show are links. */
function Fact({ name, value }: { name: string; value: string }): ReactNode {
  if (name === 'sessionId' && /^session_\w+$/.test(value))
    return (
      <Link to="/sessions/$sessionId" params={{ sessionId: value }} className="text-accent hover:underline">
        {value}
      </Link>
    )
  return (
    <bdi className="line-clamp-4 [overflow-wrap:anywhere] whitespace-pre-wrap" title={value}>
      {value}
    </bdi>
  )
}
