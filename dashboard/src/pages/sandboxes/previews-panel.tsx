import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { PreviewInfo, SandboxInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { Badge } from '../../ui/badge.tsx'
import { Panel } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { previewsQuery } from './queries.ts'

/** The declared previews of a sandbox. Every other port has one too, which the tab with ports shows. */
export function PreviewsPanel({ info }: { info: SandboxInfo }): ReactNode {
  const may = useMay()
  const { data, error, refetch } = useQuery({ ...previewsQuery(info), enabled: may('preview') })
  if (!may('preview')) return null
  return (
    <Panel title="Previews">
      {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <Loading rows={1} />}
      {data?.length === 0 && (
        <p className="text-soft">
          None is declared. Each port answers under an address of its own all the same, see{' '}
          <Link
            to="/sandboxes/$sandboxId"
            params={{ sandboxId: info.sandboxID }}
            search={{ tab: 'ports' }}
            className="text-accent underline"
          >
            Ports
          </Link>
          .
        </p>
      )}
      <ul className="flex flex-col gap-2">
        {data?.map((preview) => (
          <li key={preview.id} className="flex flex-wrap items-center gap-2">
            <span className="font-medium tabular-nums">{preview.port}</span>
            <bdi className="min-w-0 font-mono text-[13px] break-all">{preview.customHostname ?? preview.hostname}</bdi>
            <PreviewBadges preview={preview} />
          </li>
        ))}
      </ul>
    </Panel>
  )
}

export function PreviewBadges({ preview }: { preview: PreviewInfo }): ReactNode {
  const { authConfig, customHostname, sslStatus } = preview
  return (
    <>
      {authConfig.scheme !== undefined && <Badge tone="accent">needs a token</Badge>}
      {customHostname !== undefined && (
        <Badge tone={sslStatus === 'pending' ? 'warn' : sslStatus === 'failed' ? 'bad' : 'good'}>
          domain {sslStatus}
        </Badge>
      )}
    </>
  )
}
