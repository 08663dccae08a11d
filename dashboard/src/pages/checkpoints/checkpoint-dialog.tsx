import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ListedCheckpointInfo } from 'atoll-sdk'
import { CalendarClock, GitBranch, Play, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { visible } from '../../lib/visible.ts'
import { Button } from '../../ui/button.tsx'
import { CommandHint } from '../../ui/commands.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { checkpointQuery } from './checkpoint.ts'
import { CheckpointFacts } from './checkpoint-facts.tsx'
import { DeleteCheckpoints } from './delete-checkpoints.tsx'
import { ExpiryDialog } from './expiry-dialog.tsx'
import { isOfTurn, mayExpire } from './words.ts'

/** `known`: as the list has it, until it is read alone. */
export function CheckpointDialog({
  id,
  known,
  onClose,
}: {
  id: string
  known: ListedCheckpointInfo | undefined
  onClose: () => void
}): ReactNode {
  const { data = known, error, refetch } = useQuery(checkpointQuery(id))
  return (
    <Dialog
      title={data === undefined ? 'Checkpoint' : `Checkpoint ${visible(data.name)}`}
      isOpen
      onOpenChange={onClose}
    >
      <div className="flex flex-col gap-4">
        {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
        {data !== undefined && (
          <>
            <CheckpointFacts checkpoint={data} />
            <Acts checkpoint={data} onDeleted={onClose} />
          </>
        )}
        {data === undefined && error === null && <Loading label="Loading the checkpoint" rows={6} />}
      </div>
    </Dialog>
  )
}

const linkLook =
  'inline-flex h-8 items-center gap-1.5 rounded-md border bg-raised px-3 font-medium whitespace-nowrap hover:border-accent'

function Acts({ checkpoint, onDeleted }: { checkpoint: ListedCheckpointInfo; onDeleted: () => void }): ReactNode {
  const [isExpiryOpen, setExpiryOpen] = useState(false)
  const mayWrite = useMay()('sandbox:write')
  const { id, sandboxId, status } = checkpoint
  return (
    <div className="flex flex-wrap items-center gap-2">
      {mayWrite && status !== 'failed' && (
        <Link to="/sandboxes" search={{ new: 'sandbox', checkpoint: id }} className={linkLook}>
          <Play aria-hidden="true" className="size-4" /> Create a sandbox
        </Link>
      )}
      <Link to="/checkpoints/tree/$sandboxId" params={{ sandboxId }} search={{ node: id }} className={linkLook}>
        <GitBranch aria-hidden="true" className="size-4" /> Show in the tree
      </Link>
      {mayWrite && mayExpire(checkpoint) && (
        <Button onClick={() => setExpiryOpen(true)}>
          <CalendarClock aria-hidden="true" className="size-4" /> Set the expiry
        </Button>
      )}
      {mayWrite && !isOfTurn(checkpoint) && (
        <DeleteCheckpoints
          checkpoints={[checkpoint]}
          onDeleted={onDeleted}
          trigger={
            <Button look="danger">
              <Trash2 aria-hidden="true" className="size-4" /> Delete
            </Button>
          }
        />
      )}
      <div className="ml-auto">
        <CommandHint
          commands={{
            cli: `atoll fork ${id}`,
            curl: { method: 'POST', path: `/api/sandboxes/from-checkpoint/${id}`, json: {} },
            sdk: `await Sandbox.fork('${id}')`,
          }}
        />
      </div>
      {isOfTurn(checkpoint) && (
        <p className="w-full text-[13px] text-soft">It goes with its session, and is not deleted alone.</p>
      )}
      {isExpiryOpen && <ExpiryDialog checkpoint={checkpoint} onClose={() => setExpiryOpen(false)} />}
    </div>
  )
}
