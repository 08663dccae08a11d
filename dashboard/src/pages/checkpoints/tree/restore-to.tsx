import { useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { AtollError, type Checkpoint, type Sandbox, type SandboxTreeNode } from 'atoll-sdk'
import { RotateCcw } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { formatTime } from '../../../lib/format.ts'
import { readSandbox, sandboxKey, sandboxOf } from '../../../sandboxes/sandbox.ts'
import { Button } from '../../../ui/button.tsx'
import { CodeLine } from '../../../ui/copy.tsx'
import { Confirm } from '../../../ui/dialog.tsx'
import { CheckField } from '../../../ui/field.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { nameByTime, refreshCheckpoints } from '../checkpoint.ts'
import { labelOf } from './layout.ts'

interface RestoreToProps {
  checkpoint: SandboxTreeNode
  sandbox: SandboxTreeNode
}

/** Puts the sandbox back to one of its checkpoints, after a question that says what is lost. */
export function RestoreTo({ checkpoint, sandbox }: RestoreToProps): ReactNode {
  const queries = useQueryClient()
  const toast = useToast()
  const [isKept, setKept] = useState(true)
  if (sandbox.sessionId !== undefined) return <RewindInstead sessionId={sandbox.sessionId} />
  const [from, to] = [labelOf(sandbox), labelOf(checkpoint)]
  const run = async () => {
    await restore(sandboxOf(await readSandbox(sandbox.id)), checkpoint.id, isKept)
    toast({ text: `${from} is back at ${to}.` })
    await Promise.all([refreshCheckpoints(queries), queries.invalidateQueries({ queryKey: sandboxKey(sandbox.id) })])
  }
  return (
    <Confirm
      trigger={
        <Button>
          <RotateCcw aria-hidden="true" className="size-4" /> Restore
        </Button>
      }
      title={`Restore ${from} to ${to}?`}
      action={`Restore ${from}`}
      onConfirm={run}
    >
      <p>
        Its files {checkpoint.kind === 'full' ? 'and processes go' : 'go'} back to {formatTime(checkpoint.createdAt)}.
        {checkpoint.kind === 'full' ? '' : ' All of its processes end, since the checkpoint has no memory.'} What it has
        written since then is lost{isKept ? ' but for the checkpoint that is made first' : ' for good'}. Its volumes
        stay as they are.
      </p>
      <div className="mt-3 text-ink">
        <CheckField
          label="Keep the present as a checkpoint first"
          hint="Restoring to that one undoes this."
          checked={isKept}
          onChange={({ target }) => setKept(target.checked)}
        />
      </div>
      <CodeLine
        className="mt-3 text-ink"
        label="Copy the CLI command"
        text={`atoll rewind ${sandbox.id} ${checkpoint.id}${isKept ? '' : ' --no-undo'}`}
      />
    </Confirm>
  )
}

function RewindInstead({ sessionId }: { sessionId: string }): ReactNode {
  return (
    <p className="w-full text-[13px] text-soft">
      The sandbox is of a session, whose conversation goes back with it:{' '}
      <Link to="/sessions/$sessionId" params={{ sessionId }} className="text-accent underline">
        rewind the session
      </Link>
      .
    </p>
  )
}

async function restore(sandbox: Sandbox, checkpointId: string, isKept: boolean): Promise<void> {
  const kept = isKept ? await keepPresent(sandbox) : undefined
  try {
    await sandbox.restore(checkpointId)
  } catch (error) {
    // Where the server has refused, the sandbox is as it was. Where no answer came, it may be put back.
    if (error instanceof AtollError && error.code !== undefined) await kept?.delete().catch(() => undefined)
    throw error
  }
}

/** With memory where the machine can keep it. */
async function keepPresent(sandbox: Sandbox): Promise<Checkpoint> {
  const name = nameByTime('before-restore')
  try {
    return await sandbox.checkpoint({ name })
  } catch (error) {
    if (!(error instanceof AtollError) || error.code !== 'full_checkpoint_unavailable') throw error
    return await sandbox.checkpoint({ name, kind: 'disk_only' })
  }
}
