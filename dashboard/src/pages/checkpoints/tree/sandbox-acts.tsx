import { useQueryClient } from '@tanstack/react-query'
import type { Sandbox, SandboxTreeNode } from 'atoll-sdk'
import { ExternalLink, FileDiff, GitFork, Layers, SquareTerminal, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { readSandbox, sandboxOf } from '../../../sandboxes/sandbox.ts'
import { Button } from '../../../ui/button.tsx'
import { CommandHint } from '../../../ui/commands.tsx'
import { CodeLine } from '../../../ui/copy.tsx'
import { Confirm } from '../../../ui/dialog.tsx'
import { useToast } from '../../../ui/toasts.tsx'
import { reasonOf } from '../../../ui/states.tsx'
import { checkpointCommands } from '../../sandboxes/commands.ts'
import { nameByTime, refreshCheckpoints } from '../checkpoint.ts'
import { StartDialog } from '../start-dialog.tsx'
import { ActLink } from './act-link.tsx'
import { labelOf, predecessorOf, type TreeLayout } from './layout.ts'

/** As many as the server starts at once. */
const forksMax = 100

interface SandboxActsProps {
  node: SandboxTreeNode
  index: number
  layout: TreeLayout
  onSelect: (id: string | undefined) => void
  onCompare: (pair: { from: string; to: string }) => void
}

export function SandboxActs({ node, index, layout, onSelect, onCompare }: SandboxActsProps): ReactNode {
  const may = useMay()
  const queries = useQueryClient()
  const toast = useToast()
  const [isForkOpen, setForkOpen] = useState(false)
  const [isFreezing, setFreezing] = useState(false)
  const { id, status } = node
  if (status === 'stopped')
    return <p className="text-soft">It is stopped for good. What was made of it can still be used.</p>
  const before = predecessorOf(layout, index)
  const freeze = async () => {
    setFreezing(true)
    try {
      const checkpoint = await (await sandboxById(id)).checkpoint({ name: nameByTime('checkpoint') })
      await refreshCheckpoints(queries)
      onSelect(checkpoint.id)
    } catch (error) {
      toast({ tone: 'bad', text: `The checkpoint failed: ${reasonOf(error)}` })
    } finally {
      setFreezing(false)
    }
  }
  return (
    <div className="flex flex-wrap items-center gap-2">
      <ActLink to="/sandboxes/$sandboxId" params={{ sandboxId: id }}>
        <ExternalLink aria-hidden="true" className="size-4" /> Open
      </ActLink>
      {may('sandbox:exec') && (
        <ActLink to="/sandboxes/$sandboxId" params={{ sandboxId: id }} search={{ tab: 'terminal' }}>
          <SquareTerminal aria-hidden="true" className="size-4" /> Shell
        </ActLink>
      )}
      {may('sandbox:write') && (
        <>
          <Button onClick={() => setForkOpen(true)}>
            <GitFork aria-hidden="true" className="size-4" /> Fork
          </Button>
          <Button isBusy={isFreezing} onClick={() => void freeze()}>
            <Layers aria-hidden="true" className="size-4" /> Checkpoint
          </Button>
        </>
      )}
      {before !== undefined && (
        <Button onClick={() => onCompare({ from: before.id, to: id })}>
          <FileDiff aria-hidden="true" className="size-4" /> Diff
        </Button>
      )}
      {may('sandbox:write') && (
        <Confirm
          trigger={
            <Button look="danger">
              <Trash2 aria-hidden="true" className="size-4" /> Delete
            </Button>
          }
          title={`Delete the sandbox ${labelOf(node)}?`}
          action="Delete the sandbox"
          onConfirm={async () => {
            await (await sandboxById(id)).delete()
            await refreshCheckpoints(queries)
            onSelect(node.parentId ?? undefined)
          }}
        >
          <p>
            Its disk, memory and processes are lost. Its checkpoints stay, and sandboxes that were started from them run
            on.
          </p>
          <CodeLine className="mt-3 text-ink" label="Copy the CLI command" text={`atoll rm ${id}`} />
          {node.sessionId !== undefined && <p className="mt-2">It is of a session, which loses its machine.</p>}
        </Confirm>
      )}
      {may('sandbox:write') && (
        <CommandHint
          label="Show the checkpoint as a command"
          commands={checkpointCommands(id, { name: nameByTime('checkpoint') })}
        />
      )}
      {isForkOpen && (
        <StartDialog
          title={`Fork ${labelOf(node)}`}
          description="A checkpoint of the present is made first, and the fork goes on from it with the same processes. The checkpoint stays in the tree."
          action="Fork"
          countMax={forksMax}
          start={async (options, count) => {
            const checkpoint = await (await sandboxById(id)).checkpoint({ name: nameByTime('fork') })
            await refreshCheckpoints(queries)
            return count === 1 ? [await checkpoint.fork(options)] : await checkpoint.forkMany(count, options)
          }}
          commandsOf={(options, count) => ({
            cli: `atoll fork "$(atoll checkpoint ${id})"${count > 1 ? ` --count ${count}` : ''}${options.name === undefined ? '' : ` --name ${options.name}`}`,
            sdk: `const checkpoint = await sandbox.checkpoint()\nconst fork = await checkpoint.fork()`,
          })}
          onClose={() => setForkOpen(false)}
          onStarted={([first]) => {
            void refreshCheckpoints(queries)
            if (first !== undefined) onSelect(first.id)
          }}
        />
      )}
    </div>
  )
}

async function sandboxById(id: string): Promise<Sandbox> {
  return sandboxOf(await readSandbox(id))
}
