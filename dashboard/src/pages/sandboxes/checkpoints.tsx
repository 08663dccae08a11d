import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type ListedCheckpointInfo, Sandbox, type SandboxInfo } from 'atoll-sdk'
import { GitBranch, GitFork, Layers, RotateCcw, Trash2 } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { useMay } from '../../account/account.tsx'
import { client } from '../../account/client.ts'
import { formatBytes } from '../../lib/format.ts'
import { nameOf, sandboxKey, sandboxOf } from '../../sandboxes/sandbox.ts'
import { useRefresh } from '../../sandboxes/use-sandboxes.ts'
import { Badge, StateBadge } from '../../ui/badge.tsx'
import { Button, IconButton } from '../../ui/button.tsx'
import { CommandHint, CommandLines } from '../../ui/commands.tsx'
import { Confirm } from '../../ui/dialog.tsx'
import { EmptyState, ErrorNote, Loading } from '../../ui/states.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { DeleteCheckpoints } from '../checkpoints/delete-checkpoints.tsx'
import { StartDialog } from '../checkpoints/start-dialog.tsx'
import { isOfTurn, kindWords, usesText } from '../checkpoints/words.ts'
import { CheckpointDialog } from './checkpoint-dialog.tsx'
import { forkCommands, restoreCommands } from './commands.ts'

/** Checkpoints that are read; a sandbox keeps about a hundred of its own, besides those of turns. */
const shownMax = 300
const forksMax = 20

/** The checkpoints of a sandbox, newest first, without those of turns of a session. */
export function Checkpoints({ info }: { info: SandboxInfo }): ReactNode {
  const { sandboxID: id, status } = info
  const [isOpen, setOpen] = useState(false)
  const mayWrite = useMay()('sandbox:write')
  const { data, error, refetch } = useQuery({
    queryKey: sandboxKey(id, 'checkpoints'),
    queryFn: async ({ signal }) => {
      const found: ListedCheckpointInfo[] = []
      for await (const checkpoint of client.checkpoints({ sandbox: id, signal })) {
        found.push(checkpoint)
        if (found.length === shownMax) break
      }
      return found
    },
  })
  const isLive = status === 'running' || status === 'hibernated'
  return (
    <>
      <div className="flex flex-wrap items-center gap-2">
        <Link
          to="/checkpoints/tree/$sandboxId"
          params={{ sandboxId: id }}
          className="inline-flex items-center gap-1.5 text-accent hover:underline"
        >
          <GitBranch aria-hidden="true" className="size-4" /> The tree of its checkpoints and forks
        </Link>
        {mayWrite && isLive && (
          <Button className="ml-auto" onClick={() => setOpen(true)}>
            <Layers aria-hidden="true" className="size-4" /> New checkpoint
          </Button>
        )}
      </div>
      {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <Loading label="Loading checkpoints" />}
      {data?.length === 0 && (
        <EmptyState title="There is no checkpoint of it">
          A checkpoint keeps a moment: the disk, and the memory with all processes. Others start from it, and the
          sandbox can go back to it.
        </EmptyState>
      )}
      {data !== undefined && data.length > 0 && (
        <ul className="divide-y rounded-lg border bg-raised">
          {data.map((checkpoint) => (
            <CheckpointLine key={checkpoint.id} checkpoint={checkpoint} info={info} isLive={isLive} />
          ))}
        </ul>
      )}
      {data?.length === shownMax && <p className="text-soft">The newest {shownMax} are shown.</p>}
      {isOpen && <CheckpointDialog info={info} onClose={() => setOpen(false)} />}
    </>
  )
}

function CheckpointLine({
  checkpoint,
  info,
  isLive,
}: {
  checkpoint: ListedCheckpointInfo
  info: SandboxInfo
  isLive: boolean
}): ReactNode {
  const { id, name, kind, status, sizeBytes, createdAt, expiresAt, error } = checkpoint
  const [isForking, setForking] = useState(false)
  const mayWrite = useMay()('sandbox:write')
  const uses = usesText(checkpoint)
  return (
    <li className="flex flex-wrap items-center gap-x-3 gap-y-1 px-4 py-2">
      <span className="flex min-w-0 flex-1 basis-60 flex-col">
        <span className="flex min-w-0 items-center gap-2">
          <Link
            to="/checkpoints"
            search={{ sandbox: info.sandboxID, checkpoint: id }}
            className="min-w-0 truncate font-medium hover:underline"
            title={`${name} (${id})`}
          >
            <bdi>{name}</bdi>
          </Link>
          {status === 'ready' ? (
            <Badge tone={kind === 'full' ? 'accent' : 'plain'}>{kindWords[kind]}</Badge>
          ) : (
            <StateBadge state={status} {...(error === undefined ? {} : { title: error })} />
          )}
        </span>
        <span className="text-[13px] text-soft">
          {formatBytes(sizeBytes)}, made <TimeAgo time={createdAt} />
          {expiresAt !== undefined && (
            <>
              , deleted <TimeAgo time={expiresAt} />
            </>
          )}
          {uses !== '' && `, in use by ${uses}`}
        </span>
        {error !== undefined && <bdi className="text-[13px] [overflow-wrap:anywhere] text-bad">{error}</bdi>}
      </span>
      {mayWrite && (
        <span className="flex items-center gap-1">
          {status === 'ready' && (
            <Button size="small" onClick={() => setForking(true)}>
              <GitFork aria-hidden="true" className="size-4" /> Fork
            </Button>
          )}
          {status === 'ready' && isLive && <Restore checkpoint={checkpoint} info={info} />}
          {!isOfTurn(checkpoint) && (
            <DeleteCheckpoints
              checkpoints={[checkpoint]}
              trigger={<IconButton label={`Delete the checkpoint ${name}`} icon={<Trash2 className="size-4" />} />}
            />
          )}
          <CommandHint label={`Acts on ${name} as commands`} commands={forkCommands(id, {})} />
        </span>
      )}
      {isForking && (
        <StartDialog
          title={`Fork ${name}`}
          description="Sandboxes go on from this checkpoint, with its processes where it has memory."
          action="Fork"
          countMax={forksMax}
          start={async (options, count) =>
            count === 1
              ? [await Sandbox.fork(id, { client, ...options })]
              : await Sandbox.forkMany(id, count, { client, ...options })
          }
          commandsOf={(options, count) => forkCommands(id, options, count)}
          onClose={() => setForking(false)}
        />
      )}
    </li>
  )
}

function Restore({ checkpoint, info }: { checkpoint: ListedCheckpointInfo; info: SandboxInfo }): ReactNode {
  const refresh = useRefresh()
  const { id, name, kind } = checkpoint
  return (
    <Confirm
      trigger={
        <Button size="small">
          <RotateCcw aria-hidden="true" className="size-4" /> Restore
        </Button>
      }
      title={`Put ${nameOf(info)} back to “${name}”?`}
      action="Restore"
      onConfirm={async () => {
        await sandboxOf(info).restore(id)
        refresh(info.sandboxID)
      }}
    >
      <p className="mb-3">
        What it holds now is lost: its files since then, and its processes
        {kind === 'full' ? ', in whose place those of the checkpoint go on' : ''}. Make a checkpoint first to keep the
        present.
      </p>
      <CommandLines commands={restoreCommands(nameOf(info), id)} />
    </Confirm>
  )
}
