import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { formatBytes, formatCount } from '../../lib/format.ts'
import { Badge } from '../../ui/badge.tsx'
import { Meter } from '../../ui/meter.tsx'
import { Panel } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'

/** The machine of the server in short. */
export function HostPanel(): ReactNode {
  const { data, error, refetch } = useQuery({
    queryKey: ['host'],
    // No event tells of the machine, so each visit reads it.
    staleTime: 0,
    queryFn: ({ signal }) => client.host({ signal }),
  })
  return (
    <Panel
      title="Host"
      actions={
        <Link to="/host" className="text-[13px] text-accent hover:underline">
          Checks and warm pool
        </Link>
      }
    >
      {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <Loading />}
      {data !== undefined && <Capacity {...data} />}
    </Panel>
  )
}

function Capacity({ capacity, checks, version, runtime }: Awaited<ReturnType<typeof client.host>>): ReactNode {
  const { cpuCount, memoryBytes, memoryAvailableBytes, diskBytes, diskAvailableBytes } = capacity
  const { runningSandboxes, warmSandboxes } = capacity
  const memoryUsed = memoryBytes - memoryAvailableBytes
  const diskUsed = diskBytes - diskAvailableBytes
  const failing = checks.filter(({ status }) => status === 'fails')
  return (
    <div className="flex flex-col gap-3">
      <Meter
        label="Memory"
        value={memoryUsed}
        max={memoryBytes}
        text={`${formatBytes(memoryUsed)} of ${formatBytes(memoryBytes)}`}
      />
      <Meter
        label="Disk of sandboxes"
        value={diskUsed}
        max={diskBytes}
        text={`${formatBytes(diskUsed)} of ${formatBytes(diskBytes)}`}
      />
      <p className="text-[13px] text-soft">
        {formatCount(cpuCount)} processors, {formatCount(runningSandboxes)} sandboxes run for all organisations,{' '}
        {formatCount(warmSandboxes)} wait for an owner. Atoll {version}, {runtime}.
      </p>
      {failing.length > 0 && (
        <p className="flex flex-wrap items-center gap-2">
          <Badge tone="bad">{failing.length === 1 ? '1 check fails' : `${failing.length} checks fail`}</Badge>
          {failing.map(({ name }) => name).join(', ')}
        </p>
      )}
    </div>
  )
}
