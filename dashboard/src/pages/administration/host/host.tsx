import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import type { HostInfo } from 'atoll-sdk'
import { RotateCw } from 'lucide-react'
import type { ReactNode } from 'react'
import { useAccount } from '../../../account/account.tsx'
import { client } from '../../../account/client.ts'
import { formatTime } from '../../../lib/format.ts'
import { Badge } from '../../../ui/badge.tsx'
import { Button } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { Facts, Page, Panel } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { Capacity } from './capacity.tsx'
import { Checks } from './checks.tsx'
import { HostMetrics } from './host-metrics.tsx'
import { OwnLimits } from './own-limits.tsx'
import { Quarantine } from './quarantine.tsx'

/** The machine of the server. `atoll doctor` as a page. */
export function HostPage(): ReactNode {
  const account = useAccount()
  const host = useQuery({ queryKey: ['host'], queryFn: ({ signal }) => client.host({ signal }) })
  const queries = useQueryClient()
  const check = useMutation({
    mutationFn: () => client.host({ fresh: true }),
    onSuccess(found) {
      queries.setQueryData(['host'], found)
      void queries.invalidateQueries({ queryKey: ['quarantine'] })
    },
  })
  const failing = host.data?.checks.filter(({ status }) => status === 'fails').length ?? 0
  return (
    <Page
      title="Host"
      aside={
        host.data !== undefined &&
        (failing === 0 ? (
          <Badge tone="good">fit</Badge>
        ) : (
          <Badge tone="bad">{failing === 1 ? '1 check fails' : `${failing} checks fail`}</Badge>
        ))
      }
      actions={
        <>
          <CommandHint commands={{ cli: 'atoll doctor', curl: { path: '/api/host' }, sdk: 'await client.host()' }} />
          <Button isBusy={check.isPending || host.isFetching} onClick={() => check.mutate()}>
            <RotateCw aria-hidden="true" className="size-4" /> Check again
          </Button>
        </>
      }
    >
      {check.isError && <ErrorNote error={check.error} onRetry={() => check.mutate()} />}
      {host.isPending ? (
        <Loading label="Loading the state of the machine" rows={8} />
      ) : host.isError ? (
        <ErrorNote error={host.error} onRetry={() => void host.refetch()} />
      ) : (
        <LoadedHost host={host.data} readAt={host.dataUpdatedAt} isOperator={account?.isOperator === true} />
      )}
      {account?.isOperator !== true && <OwnLimits />}
      <HostMetrics isOperator={account?.isOperator === true} />
    </Page>
  )
}

function LoadedHost({ host, readAt, isOperator }: { host: HostInfo; readAt: number; isOperator: boolean }): ReactNode {
  const { version, kernel, runtime, startedAt, capacity, checks, checkedAt } = host
  return (
    <>
      <div className="grid items-start gap-4 lg:grid-cols-2">
        <Panel title="Capacity" actions={<ReadAt time={new Date(readAt).toISOString()} />}>
          <Capacity capacity={capacity} />
        </Panel>
        <Panel title="Server">
          <Facts
            items={[
              ['Version', version],
              ['Kernel', kernel],
              ['Runtime', runtime],
              [
                'Runs since',
                <span>
                  {formatTime(startedAt)} (<TimeAgo time={startedAt} />)
                </span>,
              ],
              ['Quarantine', checks.find(({ name }) => name === 'quarantine')?.detail ?? 'not told by this server'],
            ]}
          />
        </Panel>
      </div>
      {isOperator && <Quarantine />}
      <Checks checks={checks} checkedAt={checkedAt} />
    </>
  )
}

function ReadAt({ time }: { time: string }): ReactNode {
  return (
    <span className="text-[13px] text-soft">
      read <TimeAgo time={time} />
    </span>
  )
}
