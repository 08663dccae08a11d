import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { SandboxTreeNode } from 'atoll-sdk'
import type { ReactNode, Ref } from 'react'
import { useMay } from '../../../account/account.tsx'
import { formatBytes } from '../../../lib/format.ts'
import { readSandbox, sandboxKey } from '../../../sandboxes/sandbox.ts'
import { StateBadge } from '../../../ui/badge.tsx'
import { Facts } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { checkpointQuery } from '../checkpoint.ts'
import { CheckpointFacts, IdText } from '../checkpoint-facts.tsx'
import { CheckpointActs } from './checkpoint-acts.tsx'
import { labelOf, type TreeLayout } from './layout.ts'
import { NodeSymbol } from './rail.tsx'
import { SandboxActs } from './sandbox-acts.tsx'

interface NodePanelProps {
  ref: Ref<HTMLElement>
  node: SandboxTreeNode
  index: number
  layout: TreeLayout
  /** Undefined: what is selected where nothing else is. */
  onSelect: (id: string | undefined) => void
  onCompare: (pair: { from: string; to: string }) => void
  /** Escape: back to the tree. */
  onLeave: () => void
}

/** What is known of a node, and what can be done with it. */
export function NodePanel(props: NodePanelProps): ReactNode {
  const { ref, node, layout, onLeave } = props
  const label = labelOf(node)
  return (
    <section
      ref={ref}
      tabIndex={-1}
      aria-label={`${node.type === 'sandbox' ? 'Sandbox' : 'Checkpoint'} ${label}`}
      className="flex flex-col gap-4 overflow-y-auto rounded-lg border bg-raised p-4 max-lg:max-h-[48%] max-lg:shrink-0 lg:w-96"
      onKeyDown={(event) => {
        // Not of a dialog, whose keys come here too.
        if (event.key === 'Escape' && event.currentTarget.contains(event.target as Node)) onLeave()
      }}
    >
      <header className="flex items-center gap-2">
        <NodeSymbol node={node} />
        <h2 className="min-w-0 truncate font-semibold" title={label}>
          <bdi>{label}</bdi>
        </h2>
        <div className="ml-auto">
          <StateBadge state={node.status} />
        </div>
      </header>
      {node.type === 'sandbox' ? (
        <>
          <SandboxActs {...props} />
          <SandboxFacts node={node} />
        </>
      ) : (
        <>
          <CheckpointActs {...props} sandbox={parentOf(layout, props.index)} />
          <CheckpointNodeFacts node={node} />
        </>
      )}
    </section>
  )
}

function parentOf({ rows }: TreeLayout, index: number): SandboxTreeNode | undefined {
  const parent = rows[index]?.parent
  return parent === undefined ? undefined : rows[parent]?.node
}

function CheckpointNodeFacts({ node }: { node: SandboxTreeNode }): ReactNode {
  const { data, error, refetch } = useQuery(checkpointQuery(node.id))
  if (data !== undefined) return <CheckpointFacts checkpoint={data} uniqueBytes={node.uniqueBytes} />
  if (error !== null) return <ErrorNote error={error} onRetry={() => void refetch()} />
  return <Loading label="Loading the checkpoint" rows={5} />
}

function SandboxFacts({ node }: { node: SandboxTreeNode }): ReactNode {
  const { id, status, reason, createdAt, sessionId } = node
  const mayReadSessions = useMay()('session:read')
  const isStopped = status === 'stopped'
  const { data: info } = useQuery({
    queryKey: sandboxKey(id),
    queryFn: ({ signal }) => readSandbox(id, signal),
    enabled: !isStopped,
  })
  const session = mayReadSessions ? (
    <Link
      key="session"
      to="/sessions/$sessionId"
      params={{ sessionId: sessionId ?? '' }}
      className="text-accent underline"
    >
      {sessionId}
    </Link>
  ) : (
    sessionId
  )
  return (
    <Facts
      items={[
        ['Id', <IdText key="id" id={id} />],
        ['Made', <TimeAgo key="made" time={createdAt} />],
        ...(reason === undefined ? [] : [['Reason', <bdi key="reason">{info?.reasonMessage ?? reason}</bdi>] as const]),
        ...(sessionId === undefined ? [] : [['Session', session] as const]),
        ...(info === undefined
          ? []
          : ([
              ['Image', <bdi key="image">{info.templateID}</bdi>],
              ['Has', `${info.cpuCount} CPU, ${formatBytes(info.memoryMB * 2 ** 20)} memory`],
            ] as const)),
      ]}
    />
  )
}
