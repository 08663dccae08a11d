import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import type { ListeningPort, PreviewInfo, SandboxInfo } from 'atoll-sdk'
import { RotateCw } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { PreviewFrame } from '../../preview/preview-frame.tsx'
import { nameOf, sandboxOf } from '../../sandboxes/sandbox.ts'
import { Button } from '../../ui/button.tsx'
import { CommandHint, quoted } from '../../ui/commands.tsx'
import { CopyButton } from '../../ui/copy.tsx'
import { EmptyState, ErrorNote, Loading } from '../../ui/states.tsx'
import { Awake, whileAwake } from './awake.tsx'
import { PreviewDialog } from './preview-dialog.tsx'
import { PreviewBadges } from './previews-panel.tsx'
import { previewsQuery } from './queries.ts'

const route = getRouteApi('/shell/sandboxes/$sandboxId')

/** The ports on which something listens, with their previews. */
export function Ports({ info }: { info: SandboxInfo }): ReactNode {
  return (
    <Awake info={info} what="Its ports">
      <List info={info} />
    </Awake>
  )
}

interface Row {
  port: number
  url: string
  listening: ListeningPort | undefined
  preview: PreviewInfo | undefined
}

function List({ info }: { info: SandboxInfo }): ReactNode {
  const id = info.sandboxID
  const { port: shown } = route.useSearch()
  const navigate = route.useNavigate()
  const may = useMay()
  const [changed, setChanged] = useState<Row>()
  // Not below the key of the sandbox: its events would read this of one that has just gone to sleep.
  const ports = useQuery({
    queryKey: ['ports', id],
    staleTime: 0,
    queryFn: ({ signal }) => whileAwake(id, signal, (now) => sandboxOf(now).ports({ signal })),
  })
  const previews = useQuery({ ...previewsQuery(info), enabled: may('preview') })
  const error = ports.error ?? previews.error
  const rows = rowsOf(info, ports.data ?? [], previews.data ?? [])
  const chosen = rows.find(({ port }) => port === shown)
  const show = (port: number | undefined) =>
    void navigate({ search: { tab: 'ports', ...(port === undefined ? {} : { port }) } })
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <p className="text-soft">Each port answers under an address of its own, whoever has the address.</p>
        <div className="ml-auto flex items-center gap-2">
          <CommandHint
            commands={{
              cli: `atoll ports ${quoted(nameOf(info))}`,
              curl: { path: `/api/sandboxes/${nameOf(info)}/ports` },
              sdk: 'await sandbox.ports()',
            }}
          />
          <Button size="small" isBusy={ports.isFetching} onClick={() => void ports.refetch()}>
            <RotateCw aria-hidden="true" className="size-4" /> Read again
          </Button>
        </div>
      </div>
      {error !== null && <ErrorNote error={error} onRetry={() => void ports.refetch()} />}
      {ports.data === undefined && ports.error === null && <Loading label="Loading ports" />}
      {ports.data !== undefined && rows.length === 0 && (
        <EmptyState title="Nothing listens">
          Start a server in the sandbox, then read again. Programs that listen on 127.0.0.1 count too.
        </EmptyState>
      )}
      {rows.length > 0 && (
        <ul className="divide-y rounded-lg border bg-raised">
          {rows.map((row) => (
            <PortLine
              key={row.port}
              row={row}
              info={info}
              isShown={row.port === shown}
              onShow={() => show(row.port === shown ? undefined : row.port)}
              {...(may('preview') ? { onChange: () => setChanged(row) } : {})}
            />
          ))}
        </ul>
      )}
      {chosen !== undefined && (
        <div className="flex h-[34rem] max-h-[80dvh] flex-col">
          <PreviewFrame
            key={chosen.port}
            url={chosen.url}
            title={`Port ${chosen.port} of ${nameOf(info)}`}
            // A token of the whole sandbox is no token of the port, so each may demand one.
            {...(may('preview') ? { guarded: { sandboxId: id, port: chosen.port } } : {})}
          />
        </div>
      )}
      {changed !== undefined && (
        <PreviewDialog
          info={info}
          port={changed.port}
          preview={changed.preview}
          onClose={() => setChanged(undefined)}
        />
      )}
    </>
  )
}

function PortLine({
  row,
  info,
  isShown,
  onShow,
  onChange,
}: {
  row: Row
  info: SandboxInfo
  isShown: boolean
  onShow: () => void
  onChange?: () => void
}): ReactNode {
  const { port, url, listening, preview } = row
  return (
    <li className="flex flex-wrap items-center gap-x-3 gap-y-1 px-4 py-2">
      <span className="w-14 font-semibold tabular-nums">{port}</span>
      <span className="flex min-w-0 flex-1 basis-64 flex-col">
        <span className="flex min-w-0 items-center gap-1">
          <a
            href={url}
            target="_blank"
            rel="noreferrer"
            className="min-w-0 truncate font-mono text-[13px] text-accent hover:underline"
          >
            {url}
          </a>
          <CopyButton text={url} label={`Copy the address of port ${port}`} />
        </span>
        <span className="truncate text-[13px] text-soft">
          {listening === undefined ? (
            'Nothing listens'
          ) : (
            <>
              {listening.address}
              {listening.command !== undefined && (
                <bdi title={listening.command}>
                  , {listening.command}
                  {listening.pid !== undefined && ` (${listening.pid})`}
                </bdi>
              )}
            </>
          )}
        </span>
      </span>
      {preview !== undefined && <PreviewBadges preview={preview} />}
      <span className="flex items-center gap-2">
        <Button size="small" aria-pressed={isShown} onClick={onShow}>
          {isShown ? 'Hide' : 'Show'}
        </Button>
        {onChange !== undefined && (
          <Button size="small" onClick={onChange}>
            Token, domain
          </Button>
        )}
        <CommandHint
          commands={{
            cli: `atoll open ${quoted(nameOf(info))} ${port}\natoll forward ${quoted(nameOf(info))} ${port}`,
            curl: { path: `/api/sandboxes/${nameOf(info)}/ports/${port}/proxy/` },
            sdk: `const answer = await sandbox.fetch(${port}, '/')`,
          }}
        />
      </span>
    </li>
  )
}

/** What listens, then what is declared and does not. */
function rowsOf(info: SandboxInfo, ports: readonly ListeningPort[], previews: readonly PreviewInfo[]): Row[] {
  const byPort = new Map(previews.map((preview) => [preview.port, preview]))
  // A server on several addresses is listed with each.
  const listening = new Map(ports.map((one) => [one.port, one]))
  const all = new Set([...[...listening.keys()].toSorted((one, other) => one - other), ...byPort.keys()])
  return [...all].map((port) => ({
    port,
    url: listening.get(port)?.url ?? sandboxOf(info).url(port),
    listening: listening.get(port),
    preview: byPort.get(port),
  }))
}
