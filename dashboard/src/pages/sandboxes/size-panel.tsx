import { useQuery } from '@tanstack/react-query'
import type { SandboxInfo } from 'atoll-sdk'
import { useEffect, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { formatBytes } from '../../lib/format.ts'
import { nameOf } from '../../sandboxes/sandbox.ts'
import { useFollowUsage, useSamples } from '../../sandboxes/usage.ts'
import { Button } from '../../ui/button.tsx'
import { CommandHint } from '../../ui/commands.tsx'
import { Meter } from '../../ui/meter.tsx'
import { Panel } from '../../ui/page.tsx'
import { ErrorNote } from '../../ui/states.tsx'
import { autoscaleQuery, metricsQuery } from './queries.ts'
import { useLock } from './use-lock.ts'

const mebibyte = 1024 * 1024

/** What the sandbox may use and uses now. Nothing here wakes it. */
export function SizePanel({ info }: { info: SandboxInfo }): ReactNode {
  const { sandboxID: id, status, memoryMB, cpuCount } = info
  const mayWrite = useMay()('sandbox:write')
  const autoscale = useQuery(autoscaleQuery(info)).data
  const lock = useLock(info)
  const { data: metrics } = useQuery(metricsQuery(info))
  const follow = useFollowUsage()
  useEffect(() => {
    if (status === 'running') follow([id])
  }, [follow, id, status])
  const newest = useSamples(id).at(-1)
  const now = metrics?.now ?? undefined
  const cpuPercent = newest?.cpuPercent ?? now?.cpuPercent
  const memoryBytes = newest?.memoryBytes ?? now?.memoryBytes
  const limitBytes = memoryMB * mebibyte
  const isUp = status === 'running'
  return (
    <Panel
      title="Size"
      actions={
        mayWrite &&
        lock.isLocked !== undefined && (
          <>
            <CommandHint
              commands={{
                curl: {
                  method: 'PUT',
                  path: `/api/sandboxes/${nameOf(info)}/scaling-lock`,
                  json: { locked: !lock.isLocked },
                },
                sdk: `await sandbox.setScalingLock(${String(!lock.isLocked)})`,
              }}
            />
            <Button size="small" isBusy={lock.isBusy} onClick={lock.toggle}>
              {lock.isLocked ? 'Unlock the size' : 'Lock the size'}
            </Button>
          </>
        )
      }
    >
      <div className="flex flex-col gap-3">
        {isUp && cpuPercent !== undefined ? (
          <Meter
            label="CPU"
            value={cpuPercent}
            max={cpuCount * 100}
            text={`${Math.round(cpuPercent)} % of ${cpuCount * 100} %`}
          />
        ) : (
          <p>
            {cpuCount} {cpuCount === 1 ? 'CPU' : 'CPUs'}
          </p>
        )}
        {isUp && memoryBytes !== undefined ? (
          <Meter
            label="Memory"
            value={memoryBytes}
            max={limitBytes}
            text={`${formatBytes(memoryBytes)} of ${formatBytes(limitBytes)}`}
          />
        ) : (
          <p>{formatBytes(limitBytes)} of memory</p>
        )}
        {isUp && now !== undefined && now.diskBytes !== null && (
          <Meter
            label="Disk, since its image or checkpoint"
            value={now.diskBytes}
            max={now.diskLimitBytes}
            text={`${formatBytes(now.diskBytes)} of ${formatBytes(now.diskLimitBytes)}`}
          />
        )}
        <p className="text-[13px] text-soft">
          {autoscale?.enabled === true
            ? `Its memory follows its use between ${formatBytes(autoscale.minMemoryMB * mebibyte)} and ${formatBytes(autoscale.maxMemoryMB * mebibyte)}. `
            : ''}
          {lock.isLocked === true && 'Its size is locked: neither a call nor autoscale changes it. '}
          {isUp && now !== undefined && `${now.processCount} processes.`}
        </p>
        {lock.error !== null && <ErrorNote error={lock.error} />}
      </div>
    </Panel>
  )
}
