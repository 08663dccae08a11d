import { useQuery } from '@tanstack/react-query'
import type { SandboxInfo, SandboxMetrics } from 'atoll-sdk'
import { Suspense, useEffect, type ReactNode } from 'react'
import { formatBytes, formatTime } from '../../lib/format.ts'
import { lazyPart } from '../../lib/part.ts'
import { nameOf } from '../../sandboxes/sandbox.ts'
import { useFollowUsage, useSamples } from '../../sandboxes/usage.ts'
import { CommandHint } from '../../ui/commands.tsx'
import { EmptyState, ErrorNote, Loading } from '../../ui/states.tsx'
import { metricsQuery } from './queries.ts'

const MetricsCharts = lazyPart(async () => (await import('./metrics-charts.tsx')).MetricsCharts)

export type Sample = SandboxMetrics['samples'][number]

/** What the sandbox has used in the last hour. It is not woken. */
export function Metrics({ info }: { info: SandboxInfo }): ReactNode {
  const { sandboxID: id, status } = info
  const { data, error, refetch } = useQuery({ ...metricsQuery(info), staleTime: 0 })
  const follow = useFollowUsage()
  useEffect(() => {
    if (status === 'running') follow([id])
  }, [follow, id, status])
  // The stream tells that a sample was taken; disk and network are not in it.
  const sampledAt = useSamples(id).at(-1)?.at
  useEffect(() => {
    if (sampledAt !== undefined) void refetch()
  }, [sampledAt, refetch])
  if (error !== null && data === undefined) return <ErrorNote error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading label="Loading metrics" rows={6} />
  const { samples } = data
  return (
    <>
      <div className="flex items-center gap-2">
        <p className="text-soft">
          The last hour in which it ran, a sample each 15 seconds{status !== 'running' && '. It does not run now'}.
        </p>
        <div className="ml-auto">
          <CommandHint
            commands={{ curl: { path: `/api/sandboxes/${nameOf(info)}/metrics` }, sdk: 'await sandbox.metrics()' }}
          />
        </div>
      </div>
      {samples.length < 2 ? (
        <EmptyState title="There are no samples yet">
          They are taken every 15 seconds while the sandbox runs, and kept in the memory of the server.
        </EmptyState>
      ) : (
        <>
          <Suspense fallback={<Loading label="Loading charts" rows={6} />}>
            <MetricsCharts samples={samples} info={info} diskLimitBytes={data.now?.diskLimitBytes} />
          </Suspense>
          <SampleTable samples={samples} />
        </>
      )}
    </>
  )
}

/** A sample a minute is enough to read. */
const tableStep = 4

function SampleTable({ samples }: { samples: readonly Sample[] }): ReactNode {
  const shown = samples.filter((_sample, index) => (samples.length - 1 - index) % tableStep === 0).toReversed()
  return (
    <details className="rounded-lg border bg-raised px-4 py-2">
      <summary className="cursor-pointer font-medium">As a table</summary>
      <div className="overflow-x-auto py-2">
        <table className="w-full text-right tabular-nums">
          <caption className="sr-only">What the sandbox has used, a line a minute, newest first</caption>
          <thead>
            <tr className="border-b text-[13px] text-soft">
              <th scope="col" className="py-1 pr-4 text-left font-medium">
                Time
              </th>
              {['CPU', 'Memory', 'Disk', 'Received', 'Sent'].map((name) => (
                <th key={name} scope="col" className="py-1 pl-4 font-medium">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map(({ at, cpuPercent, memoryBytes, diskBytes, networkReceivedBytes, networkSentBytes }) => (
              <tr key={at} className="border-b last:border-0">
                <th scope="row" className="py-1 pr-4 text-left font-normal whitespace-nowrap">
                  {formatTime(at)}
                </th>
                <td className="py-1 pl-4">{Math.round(cpuPercent)} %</td>
                <td className="py-1 pl-4 whitespace-nowrap">{formatBytes(memoryBytes)}</td>
                <td className="py-1 pl-4 whitespace-nowrap">{diskBytes === null ? '–' : formatBytes(diskBytes)}</td>
                <td className="py-1 pl-4 whitespace-nowrap">{formatBytes(networkReceivedBytes)}</td>
                <td className="py-1 pl-4 whitespace-nowrap">{formatBytes(networkSentBytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  )
}
