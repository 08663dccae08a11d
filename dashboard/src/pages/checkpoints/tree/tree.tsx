import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import type { SandboxTree } from 'atoll-sdk'
import { useMemo, useRef, type ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { formatCount } from '../../../lib/format.ts'
import { defined } from '../../../lib/search.ts'
import { CommandHint } from '../../../ui/commands.tsx'
import { Page } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { labelOf, layoutOf } from './layout.ts'
import { NodeComparison } from './node-comparison.tsx'
import { NodePanel } from './node-panel.tsx'
import { NodeSymbol } from './rail.tsx'
import { ageLook, bytesLook } from './tree-row.tsx'
import { TreeView } from './tree-view.tsx'

const route = getRouteApi('/shell/checkpoints/tree/$sandboxId')

export function TreePage(): ReactNode {
  const { sandboxId } = route.useParams()
  return <Tree key={sandboxId} sandboxId={sandboxId} />
}

function Tree({ sandboxId }: { sandboxId: string }): ReactNode {
  const path = `/api/sandboxes/${encodeURIComponent(sandboxId)}/tree`
  const query = useQuery({
    queryKey: ['tree', sandboxId],
    queryFn: ({ signal }) => client.json<SandboxTree>('GET', path, { signal }),
  })
  const asked = query.data?.nodes.find(({ id, name }) => id === sandboxId || name === sandboxId)
  return (
    <Page
      title={`Tree of ${asked === undefined ? sandboxId : labelOf(asked)}`}
      isFilling
      actions={
        <>
          <Link to="/checkpoints" search={{ sandbox: sandboxId }} className="text-accent underline">
            Its checkpoints
          </Link>
          <CommandHint
            commands={{ cli: `atoll tree ${sandboxId}`, curl: { path }, sdk: 'const { nodes } = await sandbox.tree()' }}
          />
        </>
      }
    >
      {query.isError && <ErrorNote error={query.error} onRetry={() => void query.refetch()} />}
      {query.isPending && <Loading label="Loading the tree" rows={8} />}
      {query.data !== undefined && <TreeParts tree={query.data} askedId={asked?.id} />}
    </Page>
  )
}

function TreeParts({ tree, askedId }: { tree: SandboxTree; askedId: string | undefined }): ReactNode {
  const { node: nodeId, from, to } = route.useSearch()
  const navigate = route.useNavigate()
  const panel = useRef<HTMLElement>(null)
  const view = useRef<HTMLDivElement>(null)
  const layout = useMemo(() => layoutOf(tree.nodes), [tree])
  const asked = layout.indexOf.get(askedId ?? '') ?? 0
  const selected = layout.indexOf.get(nodeId ?? '') ?? asked
  const node = layout.rows[selected]?.node
  const select = (id: string | undefined) =>
    void navigate({ replace: true, search: (search) => defined({ ...search, node: id === askedId ? undefined : id }) })
  const compare = (pair: { from?: string; to?: string }) =>
    void navigate({ search: ({ node: kept }) => defined({ node: kept, ...pair }) })
  return (
    <>
      {tree.isCut && (
        <p className="rounded-md bg-warn-faint px-3 py-2 text-warn">
          The tree has more than the {formatCount(tree.nodes.length)} nodes that are shown. Those on the way to the
          sandbox are all there.
        </p>
      )}
      <div className="flex min-h-0 flex-1 flex-col gap-4 lg:flex-row">
        <div ref={view} className="flex min-h-0 min-w-0 flex-1 flex-col gap-2">
          <Legend />
          <TreeView
            layout={layout}
            asked={asked}
            selected={selected}
            onSelect={(index) => select(layout.rows[index]?.node.id)}
            onOpen={() => panel.current?.focus()}
          />
          <p className="text-[13px] text-soft max-lg:hidden">
            Up and down go through the rows, left to the parent, right to the first child. Enter opens a node, Escape
            comes back.
          </p>
        </div>
        {node !== undefined && (
          <NodePanel
            ref={panel}
            key={node.id}
            node={node}
            layout={layout}
            index={selected}
            onSelect={select}
            onCompare={compare}
            onLeave={() => view.current?.querySelector<HTMLElement>('[role="tree"]')?.focus()}
          />
        )}
      </div>
      {from !== undefined && to !== undefined && (
        <NodeComparison layout={layout} from={from} to={to} onChange={compare} onClose={() => compare({})} />
      )}
    </>
  )
}

const symbols = [
  ['sandbox', { type: 'sandbox', status: 'running' }],
  ['stopped', { type: 'sandbox', status: 'stopped' }],
  ['checkpoint', { type: 'checkpoint', status: 'ready', kind: 'full' }],
  ['disk only', { type: 'checkpoint', status: 'ready', kind: 'disk_only' }],
] as const

/** Names the symbols, and above the facts of the rows what they are. */
function Legend(): ReactNode {
  return (
    <div className="flex items-end gap-2 pr-3 text-[13px] text-soft">
      <div className="flex flex-1 flex-wrap items-center gap-x-4 gap-y-1">
        {symbols.map(([word, node]) => (
          <span key={word} className="flex items-center gap-1">
            <NodeSymbol node={node} /> {word}
          </span>
        ))}
      </div>
      <span className={bytesLook}>own bytes</span>
      <span className={ageLook}>made</span>
    </div>
  )
}
