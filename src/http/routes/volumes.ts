import { z } from 'zod'
import { defined } from '../../lib/defined.ts'
import { volumes as wire } from '../../protocol/http/index.ts'
import type { CheckpointVolume, MountedVolume, Volume, VolumeDetails, VolumeSnapshot } from '../../sandbox/index.ts'
import { routesOf } from '../server/route.ts'
import { seconds } from '../server/time.ts'

const route = routesOf('Volumes', 'volume')

export const volumeRoutes = [
  route('POST', '/api/volumes', {
    id: 'createVolume',
    naming: 'kept',
    summary: 'Make a volume: a folder with a size of its own that outlives sandboxes',
    description: 'Empty, or with `from` a clone of a volume or snapshot, which takes the same time whatever it holds.',
    body: wire.createVolume,
    creates: true,
    answers: { 201: { description: 'It can be mounted', body: wire.volume } },
    errors: ['not_found', 'conflict', 'quota_exceeded', 'no_capacity', 'unavailable'],
    async handle({ orgId, body, creation, deps }) {
      const input = { name: body.name, ...defined({ sizeMb: body.sizeMB, from: body.from }) }
      const volume = await deps.sandboxes.volumes.create(orgId, input, { creation })
      return { statusCode: 201, body: volumeBody(volume) }
    },
  }),
  route('GET', '/api/volumes', {
    id: 'listVolumes',
    summary: 'List volumes',
    answers: { 200: { description: 'By name', body: z.array(wire.volume) } },
    async answer({ orgId, deps, request }) {
      const { namePrefix = '' } = request.caller?.reach ?? {}
      const volumes = await deps.sandboxes.volumes.list(orgId)
      return volumes.filter(({ name }) => name.startsWith(namePrefix)).map(volumeBody)
    },
  }),
  route('GET', '/api/volumes/:name', {
    id: 'getVolume',
    summary: 'Read a volume, with what it holds and who has it mounted',
    answers: { 200: { description: 'The volume', body: wire.volumeDetails } },
    errors: ['unavailable'],
    answer: async ({ orgId, params, deps }) => detailsBody(await deps.sandboxes.volumes.get(orgId, params.name)),
  }),
  route('DELETE', '/api/volumes/:name', {
    id: 'deleteVolume',
    summary: 'Delete a volume with all that it holds',
    description: 'Refused while sandboxes have it, hibernated ones too, and while it has snapshots. Its clones stay.',
    answers: { 204: { description: 'It is gone' } },
    errors: ['conflict', 'unavailable'],
    answer: ({ orgId, params, deps }) => deps.sandboxes.volumes.delete(orgId, params.name),
  }),
  route('POST', '/api/volumes/:name/snapshots', {
    id: 'createVolumeSnapshot',
    summary: 'Freeze a volume as it is now',
    description: 'Also while a sandbox writes to it: the snapshot is of one moment, like a disk after a loss of power.',
    body: wire.createVolumeSnapshot,
    creates: true,
    answers: { 201: { description: 'It can be cloned', body: wire.volumeSnapshot } },
    errors: ['conflict', 'quota_exceeded', 'no_capacity', 'unavailable'],
    answer: async ({ orgId, params, body, creation, deps }) =>
      snapshotBody(await deps.sandboxes.volumes.createSnapshot(orgId, params.name, body.name, { creation })),
  }),
  route('GET', '/api/volumes/:name/snapshots', {
    id: 'listVolumeSnapshots',
    summary: 'List the snapshots of a volume',
    answers: { 200: { description: 'Oldest first', body: z.array(wire.volumeSnapshot) } },
    answer: async ({ orgId, params, deps }) =>
      (await deps.sandboxes.volumes.listSnapshots(orgId, params.name)).map(snapshotBody),
  }),
  route('DELETE', '/api/volumes/:name/snapshots/:snapshot', {
    id: 'deleteVolumeSnapshot',
    summary: 'Delete a snapshot of a volume',
    description: 'Its clones stay.',
    answers: { 204: { description: 'It is gone' } },
    errors: ['unavailable'],
    answer: ({ orgId, params, deps }) => deps.sandboxes.volumes.deleteSnapshot(orgId, params.name, params.snapshot),
  }),
]

/** The volumes of a sandbox without their ids. */
export function mountedBody(volumes: readonly MountedVolume[]): z.output<typeof wire.mountedVolumes> {
  return volumes.map(({ name, path, readOnly }) => ({ name, path, readOnly }))
}

export function checkpointVolumesBody(volumes: readonly CheckpointVolume[]): z.output<typeof wire.checkpointVolumes> {
  return volumes.map(({ name, path, readOnly, generation }) => ({ name, path, readOnly, ...defined({ generation }) }))
}

function volumeBody({ id, name, sizeMb, source, createdAt }: Volume): z.output<typeof wire.volume> {
  return { id, name, sizeMB: sizeMb, ...defined({ from: source }), createdAt: seconds(createdAt) }
}

function detailsBody(details: VolumeDetails): z.output<typeof wire.volumeDetails> {
  const { volume, attachments, usedBytes, generation } = details
  const mountedBy = attachments.map(({ sandboxId, path, readOnly }) => ({ sandboxID: sandboxId, path, readOnly }))
  return { ...volumeBody(volume), ...defined({ usedBytes, generation }), mountedBy }
}

function snapshotBody({ id, name, sizeMb, createdAt }: VolumeSnapshot): z.output<typeof wire.volumeSnapshot> {
  return { id, name, sizeMB: sizeMb, createdAt: seconds(createdAt) }
}
