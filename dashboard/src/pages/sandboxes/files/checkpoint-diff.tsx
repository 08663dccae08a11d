import { useQuery } from '@tanstack/react-query'
import type { Sandbox } from 'atoll-sdk'
import { ArrowLeft, RefreshCw } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { ComparisonView } from '../../../diff/comparison-view.tsx'
import { formatTime } from '../../../lib/format.ts'
import { quoted } from '../../../lib/quoted.ts'
import { sandboxKey } from '../../../sandboxes/sandbox.ts'
import { IconButton } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { inputLook } from '../../../ui/field.tsx'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { diffCommands } from './commands.ts'
import { FileName } from './file-name.tsx'

interface CheckpointDiffProps {
  sandbox: Sandbox
  sandboxName: string
  /** Absolute path. */
  folder: string
  onClose: () => void
}

/** Comparing a hundred thousand files takes a machine minutes. */
const diffTimeoutMs = 600_000

/** How the files of a folder differ from what they were in a checkpoint of the sandbox. Nothing is woken. */
export function CheckpointDiff({ sandbox, sandboxName, folder, onClose }: CheckpointDiffProps): ReactNode {
  const [chosen, setChosen] = useState<string>()
  const [count, setCount] = useState(0)
  const checkpoints = useQuery({
    queryKey: sandboxKey(sandbox.id, 'checkpoints', 'own'),
    queryFn: async ({ signal }) => (await sandbox.checkpoints({ signal })).map(({ info }) => info),
  })
  const ready = checkpoints.data?.filter(({ status }) => status === 'ready').toReversed() ?? []
  const from = ready.find(({ id }) => id === chosen) ?? ready[0]
  const diff = useQuery({
    queryKey: ['disk-diff', sandbox.id, from?.id, folder, count],
    queryFn: ({ signal }) => sandbox.diff({ from: from?.id ?? '', folder, signal, requestTimeoutMs: diffTimeoutMs }),
    enabled: from !== undefined,
    structuralSharing: false,
    gcTime: 0,
    retry: false,
  })
  return (
    <section aria-label="Changes since a checkpoint" className="flex min-h-0 min-w-0 flex-1 flex-col">
      <header className="flex min-h-11 flex-wrap items-center gap-x-2 gap-y-1 border-b px-2 py-1.5">
        <IconButton label="Close the comparison" icon={<ArrowLeft className="size-4" />} onClick={onClose} />
        <h2 className="min-w-0 truncate font-medium">
          <FileName name={folder} /> since
        </h2>
        <select
          aria-label="Checkpoint"
          className={`${inputLook} max-w-72 min-w-40 flex-1`}
          value={from?.id ?? ''}
          disabled={ready.length === 0}
          onChange={({ target }) => setChosen(target.value)}
        >
          {ready.map(({ id, name, createdAt }) => (
            <option key={id} value={id}>
              {name} · {formatTime(createdAt)}
            </option>
          ))}
        </select>
        <IconButton
          label="Compare again"
          icon={<RefreshCw className="size-4" />}
          isBusy={diff.isFetching}
          disabled={from === undefined}
          onClick={() => setCount(count + 1)}
        />
        {from !== undefined && <CommandHint commands={diffCommands(sandboxName, sandbox.id, from.id, folder)} />}
      </header>
      <div className="flex min-h-0 flex-1 flex-col p-3">
        {checkpoints.error !== null && (
          <ErrorNote error={checkpoints.error} onRetry={() => void checkpoints.refetch()} />
        )}
        {diff.error !== null && <ErrorNote error={diff.error} onRetry={() => void diff.refetch()} />}
        {(checkpoints.isPending || diff.isLoading) && <Loading label="Comparing" />}
        {checkpoints.data !== undefined && from === undefined && (
          <EmptyState title="No checkpoint yet">
            Make one with <code className="font-mono">atoll checkpoint {quoted(sandboxName)}</code>, and what changes
            after it is shown here.
          </EmptyState>
        )}
        {diff.data !== undefined && from !== undefined && (
          <ComparisonView
            key={`${from.id} ${folder} ${count}`}
            files={diff.data.files}
            isPartial={diff.data.isCut}
            loadPatch={() => sandbox.patchStream({ from: from.id, folder })}
            label={`Changed files since ${from.name}`}
            className="max-h-full"
          />
        )}
      </div>
    </section>
  )
}
