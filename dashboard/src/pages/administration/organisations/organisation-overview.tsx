import type { OrganisationInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatCount } from '../../../lib/format.ts'
import { Facts, Panel } from '../../../ui/page.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { LimitMeters } from '../host/limit-meters.tsx'
import { LimitTable } from '../host/limit-table.tsx'

export function OrganisationOverview({ organisation }: { organisation: OrganisationInfo }): ReactNode {
  const { id, createdAt, usage, limits, effectiveLimits } = organisation
  return (
    <div className="grid items-start gap-4 lg:grid-cols-2">
      <div className="flex flex-col gap-4">
        <Panel title="About it">
          <Facts
            items={[
              ['Id', <code className="font-mono text-[13px]">{id}</code>],
              ['Made', <TimeAgo time={createdAt} />],
              ...(usage === undefined
                ? []
                : ([
                    ['Volumes', formatCount(usage.volumes)],
                    ['Images', formatCount(usage.images)],
                  ] as const)),
            ]}
          />
        </Panel>
        {usage !== undefined && (
          <Panel title="What it has now">
            <LimitMeters limits={effectiveLimits} usage={usage} />
          </Panel>
        )}
      </div>
      <Panel title="Limits in force">
        <LimitTable limits={effectiveLimits} own={limits} />
      </Panel>
    </div>
  )
}
