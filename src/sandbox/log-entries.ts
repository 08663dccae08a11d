import type { LogCause, LogEntry } from '../events/index.ts'
import { defined } from '../lib/defined.ts'
import type { Checkpoint } from './checkpoint-records.ts'
import type { Preview } from './preview.ts'
import type { EgressEntry } from './ports/egress.ts'
import { endOfLife, type Sandbox } from './sandbox.ts'
import type { MountedVolume, Volume, VolumeAttachment, VolumeSnapshot } from './volume.ts'

export type SandboxBefore = Pick<Sandbox, 'status' | 'cpuCount' | 'memoryMb'>

/**
 * What the log says of a change of a sandbox: `before` is undefined for a new record.
 *
 * | from \ to  | running           | hibernated | error  | stopped                                | creating |
 * |------------|-------------------|------------|--------|----------------------------------------|----------|
 * | none       | created, ready    | hibernated | failed | stopped                                | –        |
 * | creating   | created, ready, forked of a checkpoint | hibernated | failed | failed, with a reason; stopped | – |
 * | hibernated | resumed           | –          | failed | stopped                                |          |
 * | running    | –                 | hibernated | failed | stopped                                |          |
 * | error      | resumed           | hibernated | –      | stopped                                | –        |
 *
 * `stopped` says which end it was: `user_requested`, `expired` or `idle`. A create that fails and leaves no sandbox has `failed`, and never `created`. A change of sizes has `scaled`, or `autoscaled`.
 */
export function sandboxEntries(
  before: SandboxBefore | undefined,
  after: Sandbox,
  { cause, parentId }: { cause: LogCause; parentId?: string | undefined },
): LogEntry[] {
  const of = { subject: after.id, sandboxId: after.id }
  const entries = statusEntries(before?.status, after, parentId)
  const { cpuCount, memoryMb: memoryMB } = after
  const isScaled = before !== undefined && (before.cpuCount !== cpuCount || before.memoryMb !== memoryMB)
  // A boot that is tried again may have other sizes.
  if (isScaled && after.status !== 'creating') {
    const type = cause === 'autoscale' ? 'sandbox.autoscaled' : 'sandbox.scaled'
    entries.push({ ...of, type, data: { cpuCount, memoryMB } })
  }
  return entries
}

function statusEntries(from: Sandbox['status'] | undefined, after: Sandbox, parentId?: string): LogEntry[] {
  const { id, status, reason, reasonMessage: message } = after
  if (from === status) return []
  const of = { subject: id, sandboxId: id }
  const why = defined({ reason, message })
  switch (status) {
    case 'creating':
      return []
    case 'hibernated':
      return [{ ...of, type: 'sandbox.hibernated', data: why }]
    case 'error':
      return [{ ...of, type: 'sandbox.failed', data: why }]
    case 'stopped':
      // The end of a start that failed; a deletion during the start gives no reason.
      if (from === 'creating' && reason !== undefined && endOfLife(after) === undefined)
        return [{ ...of, type: 'sandbox.failed', data: why }]
      return [{ ...of, type: 'sandbox.stopped', data: { reason: endOfLife(after) ?? 'user_requested' } }]
    case 'running': {
      if (from === 'hibernated' || from === 'error') return [{ ...of, type: 'sandbox.resumed', data: why }]
      const first: LogEntry[] = [
        { ...of, type: 'sandbox.created', data: { template: after.image } },
        { ...of, type: 'sandbox.ready', data: {} },
      ]
      if (after.fromCheckpointId === undefined) return first
      return [...first, { ...of, type: 'sandbox.forked', data: defined({ parentId }) }]
    }
  }
}

/** `url`: where the preview is; null once it is deleted. */
export function previewEntry({ sandboxId, port }: Pick<Preview, 'sandboxId' | 'port'>, url: string | null): LogEntry {
  return { type: 'sandbox.preview_url.changed', subject: sandboxId, sandboxId, data: { port, url } }
}

/** A refusal of what a sandbox asked for outside. */
export function egressDeniedEntry(entry: EgressEntry): LogEntry {
  const { sandbox, host, address, port, protocol, method, path, rule, reason } = entry
  const data = { port, protocol, ...defined({ host, address, method, path, rule, reason }) }
  return { type: 'sandbox.egress.denied', subject: sandbox, sandboxId: sandbox, data }
}

/** The entries of a checkpoint whose status has just become what it is. */
export function checkpointEntries({ id, sandboxId, name, kind, status, error: message }: Checkpoint): LogEntry[] {
  const of = { subject: id, sandboxId }
  const data = { checkpointId: id, name, kind }
  if (status === 'ready') return [{ ...of, type: 'sandbox.checkpoint.created', data }]
  return status === 'failed' ? [{ ...of, type: 'checkpoint.failed', data: { ...data, ...defined({ message }) } }] : []
}

export function checkpointDeleted({ id, sandboxId, name, kind }: Checkpoint, reason?: 'expired'): LogEntry {
  const data = { checkpointId: id, name, kind, ...defined({ reason }) }
  return { type: 'checkpoint.deleted', subject: id, sandboxId, data }
}

export function volumeEntry(end: 'created' | 'deleted', { id, name, sizeMb }: Volume): LogEntry {
  return { type: `volume.${end}`, subject: id, data: { name, sizeMB: sizeMb } }
}

export function volumeSnapshotEntry(
  end: 'created' | 'deleted',
  { id, name, sizeMb, volumeId }: VolumeSnapshot,
): LogEntry {
  return { type: `volume.snapshot.${end}`, subject: id, data: { name, sizeMB: sizeMb, volumeId } }
}

export function attachmentEntry(
  end: 'attached' | 'detached',
  { sandboxId, volumeId, path, readOnly }: VolumeAttachment,
): LogEntry {
  return { type: `volume.${end}`, subject: volumeId, sandboxId, data: { path, readOnly } }
}

export function attachmentsOf(sandboxId: string, volumes: readonly MountedVolume[]): VolumeAttachment[] {
  return volumes.map(({ id: volumeId, path, readOnly }) => ({ sandboxId, volumeId, path, readOnly }))
}
