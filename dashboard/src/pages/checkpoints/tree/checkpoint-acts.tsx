import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { Sandbox, type SandboxTreeNode } from 'atoll-sdk'
import { CalendarClock, FileDiff, GitFork, SquareTerminal, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { client } from '../../../account/client.ts'
import { Button } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { reasonOf } from '../../../ui/states.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { forkCommands } from '../../sandboxes/commands.ts'
import { checkpointQuery, refreshCheckpoints } from '../checkpoint.ts'
import { DeleteCheckpoints } from '../delete-checkpoints.tsx'
import { ExpiryDialog } from '../expiry-dialog.tsx'
import { StartDialog } from '../start-dialog.tsx'
import { isOfTurn, mayExpire } from '../words.ts'
import { labelOf, predecessorOf, type TreeLayout } from './layout.ts'
import { RestoreTo } from './restore-to.tsx'

/** As many as the server starts at once. */
const forksMax = 100
/** A fork for a look ends by itself. */
const shellIdleSeconds = 300

interface CheckpointActsProps {
  node: SandboxTreeNode
  index: number
  layout: TreeLayout
  /** That it was made of, where the tree has it. */
  sandbox: SandboxTreeNode | undefined
  onSelect: (id: string | undefined) => void
  onCompare: (pair: { from: string; to: string }) => void
}

export function CheckpointActs({ node, index, layout, sandbox, onSelect, onCompare }: CheckpointActsProps): ReactNode {
  const may = useMay()
  const queries = useQueryClient()
  const [open, setOpen] = useState<'fork' | 'expiry'>()
  const { data: checkpoint } = useQuery(checkpointQuery(node.id))
  const { id, status, parentId } = node
  const close = () => setOpen(undefined)
  const isReady = status === 'ready'
  const isAlive = sandbox !== undefined && sandbox.status !== 'stopped'
  const before = predecessorOf(layout, index)
  // Without one before it, what has happened since can still be shown.
  const pair = before !== undefined ? { from: before.id, to: id } : isAlive ? { from: id, to: sandbox.id } : undefined
  return (
    <div className="flex flex-wrap items-center gap-2">
      {isReady && may('sandbox:write') && (
        <Button onClick={() => setOpen('fork')}>
          <GitFork aria-hidden="true" className="size-4" /> Fork
        </Button>
      )}
      {isReady && may('sandbox:write') && may('sandbox:exec') && <ShellInFork checkpointId={id} />}
      {isReady && pair !== undefined && (
        <Button onClick={() => onCompare(pair)}>
          <FileDiff aria-hidden="true" className="size-4" /> Diff
        </Button>
      )}
      {isReady && isAlive && may('sandbox:write') && <RestoreTo checkpoint={node} sandbox={sandbox} />}
      {checkpoint !== undefined && may('sandbox:write') && mayExpire(checkpoint) && (
        <Button onClick={() => setOpen('expiry')}>
          <CalendarClock aria-hidden="true" className="size-4" /> Expiry
        </Button>
      )}
      {checkpoint !== undefined && may('sandbox:write') && !isOfTurn(node) && (
        <DeleteCheckpoints
          checkpoints={[checkpoint]}
          onDeleted={() => onSelect(parentId ?? undefined)}
          trigger={
            <Button look="danger">
              <Trash2 aria-hidden="true" className="size-4" /> Delete
            </Button>
          }
        />
      )}
      <CommandHint label="Show the fork as a command" commands={forkCommands(id, {})} />
      {isOfTurn(node) && (
        <p className="w-full text-[13px] text-soft">It goes with its session, and is not deleted alone.</p>
      )}
      {open === 'fork' && (
        <StartDialog
          title={`Fork ${labelOf(node)}`}
          description={
            node.kind === 'full'
              ? 'It goes on from here, with its processes where they were.'
              : 'It starts with these files, and without processes.'
          }
          action="Fork"
          countMax={forksMax}
          start={async (options, count) =>
            count === 1
              ? [await Sandbox.fork(id, { client, ...options })]
              : await Sandbox.forkMany(id, count, { client, ...options })
          }
          commandsOf={(options, count) => forkCommands(id, options, count)}
          onClose={close}
          onStarted={([first]) => {
            void refreshCheckpoints(queries)
            if (first !== undefined) onSelect(first.id)
          }}
        />
      )}
      {open === 'expiry' && checkpoint !== undefined && <ExpiryDialog checkpoint={checkpoint} onClose={close} />}
    </div>
  )
}

/** Starts a sandbox from the checkpoint for a look, and opens its terminal. */
function ShellInFork({ checkpointId }: { checkpointId: string }): ReactNode {
  const navigate = useNavigate()
  const toast = useToast()
  const [isBusy, setBusy] = useState(false)
  const start = async () => {
    setBusy(true)
    try {
      const { id } = await Sandbox.fork(checkpointId, { client, ttlSeconds: shellIdleSeconds, onIdle: 'stop' })
      await navigate({ to: '/sandboxes/$sandboxId', params: { sandboxId: id }, search: { tab: 'terminal' } })
    } catch (error) {
      toast({ tone: 'bad', text: `The fork did not start: ${reasonOf(error)}` })
    } finally {
      setBusy(false)
    }
  }
  return (
    <Button
      isBusy={isBusy}
      title="Starts a fork, which is deleted once nobody has used it for five minutes"
      onClick={() => void start()}
    >
      <SquareTerminal aria-hidden="true" className="size-4" /> Shell in a fork
    </Button>
  )
}
