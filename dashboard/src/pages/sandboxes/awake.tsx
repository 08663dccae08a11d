import { useIsMutating, useMutation, useQueryClient } from '@tanstack/react-query'
import { ConflictError, type SandboxInfo } from 'atoll-sdk'
import { Sun } from 'lucide-react'
import type { ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { readSandbox, sandboxKey, sandboxOf } from '../../sandboxes/sandbox.ts'
import { useCollection } from '../../sandboxes/use-sandboxes.ts'
import { Button } from '../../ui/button.tsx'
import { CommandHint } from '../../ui/commands.tsx'
import { EmptyState, ErrorNote } from '../../ui/states.tsx'
import { wakeCommands } from './commands.ts'

/** Wakes a sandbox and shows its new state at once. `memory: false`: from its disk alone. */
export function useWake(info: SandboxInfo) {
  const queries = useQueryClient()
  const collection = useCollection()
  return useMutation({
    mutationFn: (options: { memory?: boolean }) => sandboxOf(info).wake(options),
    onSuccess: (woken) => {
      queries.setQueryData(sandboxKey(info.sandboxID), woken)
      collection.put(woken)
    },
  })
}

/** The mutation that hibernates a sandbox. While it goes on, a read of what only a running sandbox tells would wake it again. */
export function hibernateKey(id: string): readonly string[] {
  return ['hibernate', id]
}

/**
 * Reads what only a running sandbox tells. Such a call would wake one that sleeps, and what the page knows may be old, so its state is read first.
 * Throws `ConflictError` when it does not run.
 */
export async function whileAwake<Answer>(
  id: string,
  signal: AbortSignal,
  read: (info: SandboxInfo) => Promise<Answer>,
): Promise<Answer> {
  const info = await readSandbox(id, signal)
  if (info.status !== 'running') throw new ConflictError(`The sandbox is ${info.status}`, { code: 'conflict' })
  return await read(info)
}

/** Shows its children while the sandbox runs. One that sleeps is not woken by being looked at: it asks. `what`: `Its ports`. */
export function Awake({ info, what, children }: { info: SandboxInfo; what: string; children: ReactNode }): ReactNode {
  const wake = useWake(info)
  const mayWake = useMay()('sandbox:write')
  const { status, sandboxID } = info
  const isGoingToSleep = useIsMutating({ mutationKey: hibernateKey(sandboxID) }) > 0
  if (isGoingToSleep) return <EmptyState title="It is going to sleep" />
  if (status === 'running') return children
  if (status !== 'hibernated')
    return (
      <EmptyState title={status === 'creating' ? 'It is starting' : 'It does not run'}>
        {what} can be seen while it runs.
      </EmptyState>
    )
  return (
    <EmptyState
      title="It sleeps"
      actions={
        mayWake && (
          <>
            <Button look="primary" isBusy={wake.isPending} onClick={() => wake.mutate({})}>
              <Sun aria-hidden="true" className="size-4" /> Wake it
            </Button>
            <CommandHint commands={wakeCommands(info.name ?? info.sandboxID)} />
          </>
        )
      }
    >
      {what} can be seen while it runs. Looking at them would wake it, so this page does not.
      {wake.error !== null && (
        <div className="mt-3 text-left">
          <ErrorNote error={wake.error} />
        </div>
      )}
    </EmptyState>
  )
}
