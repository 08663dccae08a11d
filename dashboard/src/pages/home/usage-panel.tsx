import type { OwnLimits } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatBytes, formatCount } from '../../lib/format.ts'
import { CommandHint } from '../../ui/commands.tsx'
import { Meter } from '../../ui/meter.tsx'
import { Panel } from '../../ui/page.tsx'

const mebibyte = 1024 * 1024

/** What the organisation has at this moment, against what it may have. */
export function UsagePanel({ own }: { own: OwnLimits }): ReactNode {
  const { limits, usage } = own
  const others = usage.sandboxes - usage.runningSandboxes
  return (
    <Panel
      title="Now"
      actions={
        <CommandHint commands={{ cli: 'atoll limits', curl: { path: '/api/limits' }, sdk: 'await client.limits()' }} />
      }
    >
      <div className="flex flex-col gap-3">
        <Bound label="Sandboxes that run" count={usage.runningSandboxes} max={limits.runningSandboxesMax} />
        <Bound
          label="Sandboxes"
          count={usage.sandboxes}
          max={limits.sandboxesMax}
          {...(others > 0 ? { more: `${formatCount(others)} asleep or failed` } : {})}
        />
        <Bound label="Sessions" count={usage.sessions} max={limits.sessionsMax} />
        <Bound label="Checkpoints" count={usage.checkpoints} max={limits.checkpointsMax} />
        <p className="text-[13px] text-soft">
          What runs has {formatBytes(usage.memoryMB * mebibyte)} of memory and {formatCount(usage.cpuCount)} CPUs.{' '}
          {formatCount(usage.images)} images, {formatCount(usage.volumes)} volumes.
        </p>
      </div>
    </Panel>
  )
}

interface BoundProps {
  label: string
  count: number
  /** Absent or null: there is no limit. */
  max: number | null | undefined
  more?: string
}

function Bound({ label, count, max, more }: BoundProps): ReactNode {
  const bound = max ?? undefined
  const text = [bound === undefined ? formatCount(count) : `${formatCount(count)} of ${formatCount(bound)}`, more]
    .filter((part) => part !== undefined)
    .join('; ')
  return <Meter label={label} value={count} max={bound ?? 0} text={text} />
}
