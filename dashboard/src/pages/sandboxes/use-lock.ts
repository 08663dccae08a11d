import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import type { SandboxInfo } from 'atoll-sdk'
import { sandboxKey, sandboxOf } from '../../sandboxes/sandbox.ts'

/** Whether the size of a sandbox is locked, and what turns that round; `isLocked` is undefined until it is read. */
export function useLock(info: SandboxInfo): {
  isLocked: boolean | undefined
  isBusy: boolean
  error: Error | null
  toggle: () => void
} {
  const queries = useQueryClient()
  const queryKey = sandboxKey(info.sandboxID, 'lock')
  const { data: isLocked } = useQuery({
    queryKey,
    queryFn: ({ signal }) => sandboxOf(info).isScalingLocked({ signal }),
  })
  const { mutate, isPending, error } = useMutation({
    mutationFn: (locked: boolean) => sandboxOf(info).setScalingLock(locked),
    // Locking turns autoscale off.
    onSettled: () => queries.invalidateQueries({ queryKey: sandboxKey(info.sandboxID) }),
  })
  return { isLocked, isBusy: isPending, error, toggle: () => mutate(isLocked !== true) }
}
