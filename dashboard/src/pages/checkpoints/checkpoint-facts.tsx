import { Link } from '@tanstack/react-router'
import type { ListedCheckpointInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { visible } from '../../lib/visible.ts'
import { formatBytes } from '../../lib/format.ts'
import { CopyButton } from '../../ui/copy.tsx'
import { Facts } from '../../ui/page.tsx'
import { TimeAgo } from '../../ui/time.tsx'
import { originWords, ownerWords, usesText } from './words.ts'

/** `uniqueBytes`: what its deletion gives back, where that is counted. */
export function CheckpointFacts({
  checkpoint,
  uniqueBytes,
}: {
  checkpoint: ListedCheckpointInfo
  uniqueBytes?: number | undefined
}): ReactNode {
  const { id, sandboxId, sandboxName, kind, origin, owner, sizeBytes, createdAt, expiresAt, volumes } = checkpoint
  const { templateID, cpuCount, memoryMB, diskMB } = checkpoint.sandboxConfig
  const uses = usesText(checkpoint)
  return (
    <Facts
      items={[
        ['Id', <IdText key="id" id={id} />],
        [
          'Sandbox',
          <Link
            key="sandbox"
            to="/sandboxes/$sandboxId"
            params={{ sandboxId }}
            className="text-accent underline"
            title={sandboxId}
          >
            <bdi>{sandboxName ?? sandboxId}</bdi>
          </Link>,
        ],
        ['Keeps', kind === 'full' ? 'disk, memory and processes' : 'the disk'],
        ['Size', formatBytes(sizeBytes)],
        ...(uniqueBytes === undefined
          ? []
          : [['Of its own', `${formatBytes(uniqueBytes)}, which a deletion gives back`] as const]),
        ['Made', <TimeAgo key="made" time={createdAt} />],
        ['Expires', expiresAt === undefined ? 'never' : <TimeAgo key="expires" time={expiresAt} />],
        ['Origin', originWords[origin]],
        ['Needed by', ownerWords[owner]],
        ['In use by', uses === '' ? 'nothing' : uses],
        ['Image', <bdi key="image">{templateID}</bdi>],
        [
          'Starts with',
          `${cpuCount} CPU, ${formatBytes(memoryMB * 2 ** 20)} memory, ${formatBytes(diskMB * 2 ** 20)} disk`,
        ],
        ...(volumes.length === 0
          ? []
          : [['Volumes', volumes.map(({ name, path }) => `${name} at ${path}`).join(', ')] as const]),
        ...(checkpoint.error === undefined
          ? []
          : [['Failed', <bdi key="error">{visible(checkpoint.error)}</bdi>] as const]),
      ]}
    />
  )
}

/** An id that can be copied. */
export function IdText({ id }: { id: string }): ReactNode {
  return (
    <span className="-my-1 flex items-center gap-1">
      <code className="min-w-0 truncate font-mono text-[13px]">{id}</code>
      <CopyButton text={id} label="Copy the id" />
    </span>
  )
}
