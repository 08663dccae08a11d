import type { SandboxInfo } from 'atoll-sdk'
import { useState } from 'react'
import { nameOf } from '../../sandboxes/sandbox.ts'
import { reasonOf } from '../../ui/states.tsx'

const atOnceMax = 4

export interface BulkRun {
  /** Names the act while it runs: `Hibernating`. */
  doing: string
  /** And after it: `hibernated`. */
  done: string
  total: number
  succeeded: number
  failures: readonly { id: string; name: string; reason: string }[]
  isOver: boolean
}

type Start = (
  words: Pick<BulkRun, 'doing' | 'done'>,
  infos: readonly SandboxInfo[],
  act: (info: SandboxInfo) => Promise<unknown>,
) => void

/** One act on many sandboxes, a few at a time; those that fail are told and the others go on. */
export function useBulk(): {
  run: BulkRun | undefined
  start: Start
  dismiss: () => void
} {
  const [run, setRun] = useState<BulkRun>()
  const start: Start = (words, infos, act) => {
    setRun({ ...words, total: infos.length, succeeded: 0, failures: [], isOver: false })
    const left = [...infos]
    const work = async () => {
      for (let info = left.shift(); info !== undefined; info = left.shift()) {
        const failed = { id: info.sandboxID, name: nameOf(info) }
        const reason = await act(info).then(
          () => undefined,
          (error: unknown) => reasonOf(error),
        )
        setRun((now) => {
          if (now === undefined) return now
          if (reason === undefined) return { ...now, succeeded: now.succeeded + 1 }
          return { ...now, failures: [...now.failures, { ...failed, reason }] }
        })
      }
    }
    void Promise.all(Array.from({ length: atOnceMax }, work)).then(() =>
      setRun((now) => now && { ...now, isOver: true }),
    )
  }
  return { run, start, dismiss: () => setRun(undefined) }
}
