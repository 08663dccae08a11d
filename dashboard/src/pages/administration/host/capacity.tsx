import type { HostInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatBytes, formatCount } from '../../../lib/format.ts'
import { Meter } from '../../../ui/meter.tsx'
import { Facts } from '../../../ui/page.tsx'

/** What the machine has, and what is left of it. */
export function Capacity({ capacity }: { capacity: HostInfo['capacity'] }): ReactNode {
  const { cpuCount, memoryBytes, memoryAvailableBytes, diskBytes, diskAvailableBytes } = capacity
  const { runningSandboxes, warmSandboxes } = capacity
  return (
    <div className="flex flex-col gap-3">
      <Taken label="Memory" bytes={memoryBytes} availableBytes={memoryAvailableBytes} />
      <Taken label="Disk of sandboxes and checkpoints" bytes={diskBytes} availableBytes={diskAvailableBytes} />
      <Facts
        items={[
          ['Processors', formatCount(cpuCount)],
          ['Sandboxes that run', `${formatCount(runningSandboxes)}, of all organisations`],
          [
            'Warm pool',
            warmSandboxes === 0 ? 'none wait' : `${formatCount(warmSandboxes)} started sandboxes wait for an owner`,
          ],
        ]}
      />
    </div>
  )
}

function Taken({ label, bytes, availableBytes }: { label: string; bytes: number; availableBytes: number }): ReactNode {
  return (
    <Meter
      label={label}
      value={bytes - availableBytes}
      max={bytes}
      text={`${formatBytes(availableBytes)} free of ${formatBytes(bytes)}`}
    />
  )
}
