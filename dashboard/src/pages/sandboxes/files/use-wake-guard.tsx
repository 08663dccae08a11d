import type { Sandbox, SandboxInfo } from 'atoll-sdk'
import { useRef, useState, type ReactNode } from 'react'
import { nameOf } from '../../../sandboxes/sandbox.ts'
import { useRefresh } from '../../../sandboxes/use-sandboxes.ts'
import { Confirm } from '../../../ui/dialog.tsx'

interface WakeGuard {
  /** Resolves with whether the sandbox is awake, after the reader was asked if it is not. */
  awake: () => Promise<boolean>
  /** Wakes it without a question. Throws what the server refuses with. */
  wake: () => Promise<void>
  dialog: ReactNode
}

/** Asks before something wakes a sandbox. Once it is awake nothing is asked. */
export function useWakeGuard(sandbox: Sandbox, info: SandboxInfo): WakeGuard {
  const refresh = useRefresh()
  const answer = useRef<(isAwake: boolean) => void>(undefined)
  const [isOpen, setOpen] = useState(false)
  const isAsleep = info.status === 'hibernated'
  const close = (isAwake: boolean) => {
    setOpen(false)
    answer.current?.(isAwake)
    answer.current = undefined
  }
  const wake = async () => {
    // It is asked for something: a key that may use files need not have the right to wake.
    await sandbox.files.stat('/')
    refresh(sandbox.id)
  }
  return {
    wake,
    awake: async () => {
      if (!isAsleep) return true
      answer.current?.(false)
      setOpen(true)
      return await new Promise<boolean>((resolve) => {
        answer.current = resolve
      })
    },
    dialog: (
      <Confirm
        isOpen={isOpen}
        onOpenChange={(next) => !next && close(false)}
        title={`${nameOf(info)} sleeps`}
        action="Wake it"
        onConfirm={async () => {
          await wake()
          close(true)
        }}
      >
        Its files can be used while it is awake. It sleeps again when nobody has used it for some time.
      </Confirm>
    ),
  }
}
