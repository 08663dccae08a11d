import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { client } from '../../../account/client.ts'
import { CommandHint } from '../../../ui/commands.tsx'
import { Panel } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { LimitMeters } from './limit-meters.tsx'
import { LimitTable } from './limit-table.tsx'

/** What the organisation of this key may have, against what it has. It follows the log. */
export function OwnLimits(): ReactNode {
  const limits = useQuery({
    queryKey: ['usage-now', 'limits'],
    queryFn: ({ signal }) => client.limits({ signal }),
  })
  return (
    <Panel
      title="Limits of the organisation"
      actions={
        <CommandHint commands={{ cli: 'atoll limits', curl: { path: '/api/limits' }, sdk: 'await client.limits()' }} />
      }
    >
      {limits.isPending ? (
        <Loading label="Loading the limits" rows={4} />
      ) : limits.isError ? (
        <ErrorNote error={limits.error} onRetry={() => void limits.refetch()} />
      ) : (
        <div className="grid items-start gap-6 lg:grid-cols-2">
          <LimitMeters {...limits.data} />
          <details className="rounded-md border px-3 py-2" open>
            <summary className="cursor-pointer font-medium">All limits in force</summary>
            <div className="mt-2">
              <LimitTable limits={limits.data.limits} />
            </div>
          </details>
        </div>
      )}
    </Panel>
  )
}
