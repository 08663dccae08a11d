import { useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { NotFoundError, type SandboxInfo } from 'atoll-sdk'
import { Suspense, useEffect, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { lazyPart } from '../../lib/part.ts'
import { nameOf, readSandbox, sandboxKey } from '../../sandboxes/sandbox.ts'
import { StateBadge } from '../../ui/badge.tsx'
import { CopyButton } from '../../ui/copy.tsx'
import { cx } from '../../ui/cx.ts'
import { Page } from '../../ui/page.tsx'
import { EmptyState, ErrorNote, Loading } from '../../ui/states.tsx'
import { Tabs, type Tab } from '../../ui/tabs.tsx'
import { EndNote } from './end-note.tsx'
import { Overview } from './overview.tsx'
import { SandboxActions } from './sandbox-actions.tsx'
import type { SandboxTab } from './search.ts'

const route = getRouteApi('/shell/sandboxes/$sandboxId')

const Terminals = lazyPart(async () => (await import('./terminal/terminals.tsx')).Terminals)
const FilesPane = lazyPart(async () => (await import('./files/files-pane.tsx')).FilesPane)
const Ports = lazyPart(async () => (await import('./ports.tsx')).Ports)
const Processes = lazyPart(async () => (await import('./processes.tsx')).Processes)
const Metrics = lazyPart(async () => (await import('./metrics.tsx')).Metrics)
const Checkpoints = lazyPart(async () => (await import('./checkpoints.tsx')).Checkpoints)
const Egress = lazyPart(async () => (await import('./egress.tsx')).Egress)
const SandboxLog = lazyPart(async () => (await import('./log.tsx')).SandboxLog)

/** Tabs that scroll by themselves and take the height of the window. */
const filling: ReadonlySet<SandboxTab> = new Set(['terminal', 'files', 'processes'])

/** One sandbox, by its id or name. */
export function SandboxPage(): ReactNode {
  const { sandboxId } = route.useParams()
  return <Read key={sandboxId} idOrName={sandboxId} />
}

function Read({ idOrName }: { idOrName: string }): ReactNode {
  const navigate = route.useNavigate()
  const { data, error, refetch } = useQuery({
    queryKey: sandboxKey(idOrName),
    queryFn: ({ signal }) => readSandbox(idOrName, signal),
  })
  const id = data?.sandboxID
  // The log names sandboxes by their ids.
  const isByName = id !== undefined && id !== idOrName
  useEffect(() => {
    if (isByName) void navigate({ params: { sandboxId: id }, search: true, replace: true })
  }, [isByName, id, navigate])
  if (data !== undefined) return <Shown info={data} />
  return (
    <Page title={idOrName.slice(0, 80)}>
      {error === null ? (
        <Loading label="Loading the sandbox" rows={6} />
      ) : error instanceof NotFoundError ? (
        <EmptyState
          title="There is no such sandbox"
          actions={
            <Link to="/sandboxes" className="text-accent underline">
              All sandboxes
            </Link>
          }
        >
          It was deleted some time ago, or never was. Checkpoints of it may still be there.
        </EmptyState>
      ) : (
        <ErrorNote error={error} onRetry={() => void refetch()} />
      )}
    </Page>
  )
}

function Shown({ info }: { info: SandboxInfo }): ReactNode {
  const { sandboxID: id, name, status, reasonMessage } = info
  const { tab = 'overview' } = route.useSearch()
  const navigate = route.useNavigate()
  const may = useMay()
  const isGone = status === 'stopped'
  const tabs: readonly (Tab & { value: SandboxTab; isOffered: boolean })[] = [
    { value: 'overview', label: 'Overview', isOffered: true, content: <Overview info={info} /> },
    {
      value: 'terminal',
      label: 'Terminal',
      isOffered: may('sandbox:exec') && !isGone,
      content: <Terminals sandboxId={id} />,
    },
    { value: 'files', label: 'Files', isOffered: !isGone, content: <FilesPane sandboxId={id} /> },
    { value: 'ports', label: 'Ports', isOffered: !isGone, content: <Ports info={info} /> },
    { value: 'processes', label: 'Processes', isOffered: !isGone, content: <Processes info={info} /> },
    { value: 'metrics', label: 'Metrics', isOffered: !isGone, content: <Metrics info={info} /> },
    { value: 'checkpoints', label: 'Checkpoints', isOffered: true, content: <Checkpoints info={info} /> },
    { value: 'egress', label: 'Egress', isOffered: true, content: <Egress info={info} /> },
    { value: 'log', label: 'Log', isOffered: may('events'), content: <SandboxLog sandboxId={id} /> },
  ]
  const offered = tabs.filter(({ isOffered }) => isOffered)
  const shown = offered.some(({ value }) => value === tab) ? tab : 'overview'
  const isFilling = filling.has(shown)
  return (
    <Page
      title={nameOf(info)}
      isFilling={isFilling}
      aside={
        <span className="flex min-w-0 flex-wrap items-center gap-x-2">
          <StateBadge state={status} {...(reasonMessage === undefined ? {} : { title: reasonMessage })} />
          <span className="flex items-center">
            {name !== undefined && <code className="font-mono text-[13px] text-soft">{id}</code>}
            <CopyButton text={id} label="Copy the id" />
          </span>
        </span>
      }
      actions={<SandboxActions info={info} />}
    >
      <EndNote info={info} />
      <Tabs
        label={`Parts of ${nameOf(info)}`}
        value={shown}
        onChange={(value) =>
          void navigate({ search: value === 'overview' ? {} : { tab: value as Exclude<SandboxTab, 'overview'> } })
        }
        tabs={offered.map((one) => ({
          ...one,
          content: (
            <Suspense fallback={<Loading />}>
              <div className={cx('flex min-w-0 flex-col gap-4', isFilling && 'min-h-0 flex-1')}>{one.content}</div>
            </Suspense>
          ),
        }))}
      />
    </Page>
  )
}
