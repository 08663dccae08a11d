import type { SandboxInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatBytes } from '../lib/format.ts'
import { Sparkline } from '../ui/sparkline.tsx'
import { useSamples } from './usage.ts'

const mebibyte = 1024 * 1024

/** The processor of a running sandbox in the last quarter of an hour; nothing where it is not known. */
export function CpuGraph({ info }: { info: SandboxInfo }): ReactNode {
  const samples = useSamples(info.sandboxID)
  const newest = samples.at(-1)
  if (info.status !== 'running' || newest === undefined) return null
  const percent = Math.round(newest.cpuPercent)
  return (
    <span className="flex items-center gap-2">
      <Sparkline
        values={samples.map(({ cpuPercent }) => cpuPercent)}
        max={info.cpuCount * 100}
        label={`CPU: ${percent} % of ${info.cpuCount * 100} %`}
        width={56}
      />
      <span className="text-[13px] text-soft tabular-nums">{percent} %</span>
    </span>
  )
}

/** The memory of a running sandbox likewise; without samples what it may use. */
export function MemoryGraph({ info }: { info: SandboxInfo }): ReactNode {
  const samples = useSamples(info.sandboxID)
  const newest = samples.at(-1)
  const limit = formatBytes(info.memoryMB * mebibyte)
  if (info.status !== 'running' || newest === undefined)
    return <span className="text-[13px] text-soft">of {limit}</span>
  const used = formatBytes(newest.memoryBytes)
  return (
    <span className="flex items-center gap-2">
      <Sparkline
        values={samples.map(({ memoryBytes }) => memoryBytes)}
        max={newest.memoryLimitBytes}
        label={`Memory: ${used} of ${limit}`}
        width={56}
      />
      <span className="text-[13px] text-soft tabular-nums">{used}</span>
    </span>
  )
}
