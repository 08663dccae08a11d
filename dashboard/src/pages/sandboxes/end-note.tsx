import type { SandboxInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { cx } from '../../ui/cx.ts'

const reasons: Record<NonNullable<SandboxInfo['reason']>, string> = {
  oom: 'It ran out of memory',
  disk_full: 'Its disk is full',
  runtime_failed: 'The runtime failed',
  host_lost: 'Its host was lost',
  patch_failed: 'A patch of its checkpoint failed',
  memory_not_restorable: 'Its memory cannot be restored',
  hook_failed: 'A hook of its start failed',
  expired: 'It has reached its maximum age',
  idle: 'Nobody used it for its idle timeout',
}

/** Says that a sandbox is gone, or why it does not run. */
export function EndNote({ info }: { info: SandboxInfo }): ReactNode {
  const { status, reason, reasonMessage } = info
  const isGone = status === 'stopped'
  if (!isGone && reason === undefined) return null
  const what = [reason && reasons[reason], reasonMessage].filter((text) => text !== undefined).join(': ')
  return (
    <p
      role="status"
      className={cx(
        'rounded-md px-3 py-2 [overflow-wrap:anywhere]',
        isGone ? 'bg-panel text-ink' : status === 'error' ? 'bg-bad-faint text-bad' : 'bg-warn-faint text-warn',
      )}
    >
      {isGone && 'This sandbox is deleted. Its disk and memory are gone; its checkpoints stay. '}
      {what !== '' && `${what}.`}
      {reason === 'memory_not_restorable' && ' Wake it without its memory to start it from its disk.'}
    </p>
  )
}
