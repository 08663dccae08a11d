import type { SandboxInfo } from 'atoll-sdk'
import { useEffect, useEffectEvent, type ReactNode } from 'react'
import { useNow } from '../lib/clock.ts'
import { formatSeconds, formatTime } from '../lib/format.ts'
import { cx } from '../ui/cx.ts'

/**
 * What is left of the idle timeout. Each use of the sandbox lengthens it, which the log does not tell: when it has run out as it was read, `onPast` is
 * called once, so that the sandbox can be read anew.
 */
export function IdleLeft({ info, onPast }: { info: SandboxInfo; onPast: (id: string) => void }): ReactNode {
  const { endAt, sandboxID, status, timeout, onIdle } = info
  const now = useNow()
  const leftSeconds = endAt === null ? undefined : (Date.parse(endAt) - now) / 1000
  const isPast = status === 'running' && leftSeconds !== undefined && leftSeconds <= 0
  const notify = useEffectEvent(() => onPast(sandboxID))
  useEffect(() => {
    if (isPast) notify()
  }, [isPast, endAt])
  if (status !== 'running') return <span className="text-soft">–</span>
  if (endAt === null || leftSeconds === undefined)
    return (
      <span title={timeout === 0 ? 'It has no idle timeout' : 'It is in use'}>
        {timeout === 0 ? 'never ends' : 'in use'}
      </span>
    )
  const then = onIdle === 'stop' ? 'deleted' : 'hibernated'
  return (
    <span
      title={`Unless it is used, it is ${then} at ${formatTime(endAt)}`}
      className={cx('flex flex-col whitespace-nowrap tabular-nums', onIdle === 'stop' && 'leading-tight')}
    >
      {isPast ? 'any moment' : formatSeconds(Math.max(1, leftSeconds))}
      {onIdle === 'stop' && <span className="text-xs text-bad">then deleted</span>}
    </span>
  )
}
