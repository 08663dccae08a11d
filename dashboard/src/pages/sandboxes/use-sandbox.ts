import { useQuery } from '@tanstack/react-query'
import type { Sandbox, SandboxInfo } from 'atoll-sdk'
import { useMemo } from 'react'
import { readSandbox, sandboxKey, sandboxOf } from '../../sandboxes/sandbox.ts'

/** A sandbox and its state, which follows the log. Nothing of it wakes the sandbox. */
export function useSandbox(sandboxId: string): {
  sandbox: Sandbox | undefined
  info: SandboxInfo | undefined
  error: Error | null
  retry: () => void
} {
  const { data, error, refetch } = useQuery({
    queryKey: sandboxKey(sandboxId),
    queryFn: ({ signal }) => readSandbox(sandboxId, signal),
  })
  // The same object as long as it is the same sandbox: connections hang on it.
  const sandbox = useMemo(
    () => (data === undefined ? undefined : sandboxOf(data)),
    [data?.sandboxID, data?.sandboxDomain],
  )
  return { sandbox, info: data, error, retry: () => void refetch() }
}
