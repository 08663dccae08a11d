import { z } from 'zod'
import { secondTime } from './common.ts'

const volumeName = z.string().meta({ description: '1 to 63 of `a-z 0-9 _ . -`, the first a letter or digit' })

const mountFields = {
  name: z.string().meta({ description: 'Name of the volume' }),
  path: z.string().meta({ description: 'Where the sandbox has it: an absolute path without `..`' }),
}

/** In requests that start sandboxes. */
export const mounts = z
  .array(
    z.object({
      ...mountFields,
      readOnly: z.boolean().default(false).meta({ description: 'Any number of sandboxes may read, one may write' }),
    }),
  )
  .meta({ description: 'Volumes to mount; none lies within another. At most 16' })

const mounted = {
  ...mountFields,
  readOnly: z.boolean().meta({ description: 'Whether the sandbox cannot write to it' }),
}

/** In answers. */
export const mountedVolumes = z.array(z.object(mounted).meta({ id: 'MountedVolume' }))

export const checkpointVolumes = z.array(
  z
    .object({
      ...mounted,
      generation: z.int().optional().meta({
        description: 'That of the volume when the checkpoint was made; an equal one says that it has not changed since',
      }),
    })
    .meta({ id: 'CheckpointVolume' }),
)

export const createVolume = z.object({
  name: volumeName,
  sizeMB: z
    .int()
    .positive()
    .optional()
    .meta({ description: 'What it may hold, in MiB; default 10240, or that of `from`' }),
  from: z
    .string()
    .min(1)
    .optional()
    .meta({ description: 'The volume, or `volume@snapshot`, that it begins as a clone of' }),
})

const volumeFields = {
  id: z.string().meta({ description: 'Id of the volume, `vol-…`' }),
  name: z.string().meta({ description: 'Name given at its creation' }),
  sizeMB: z.int().meta({ description: 'What it may hold, in MiB' }),
  from: z.string().optional().meta({ description: 'What it is a clone of' }),
  createdAt: secondTime.meta({ description: 'When it was made' }),
}

export const volume = z.object(volumeFields).meta({ id: 'Volume' })

export const volumeDetails = z
  .object({
    ...volumeFields,
    usedBytes: z
      .number()
      .optional()
      .meta({ description: 'What it holds, shared with clones or not; absent where its data is missing' }),
    generation: z
      .int()
      .optional()
      .meta({ description: 'Grows with the changes that have reached the disk, which takes up to half a minute' }),
    mountedBy: z
      .array(
        z.object({
          sandboxID: z.string().meta({ description: 'Id of the sandbox, which may hibernate' }),
          path: z.string().meta({ description: 'Where it has the volume' }),
          readOnly: z.boolean().meta({ description: 'Whether it cannot write to it' }),
        }),
      )
      .meta({ description: 'The sandboxes that have it' }),
  })
  .meta({ id: 'VolumeDetails' })

export const createVolumeSnapshot = z.object({ name: volumeName })

export const volumeSnapshot = z
  .object({
    id: z.string().meta({ description: 'Id of the snapshot, `vol-…`' }),
    name: z.string().meta({ description: 'Name given at its creation' }),
    sizeMB: z.int().meta({ description: 'Least size of a clone, in MiB' }),
    createdAt: secondTime.meta({ description: 'When it was made' }),
  })
  .meta({ id: 'VolumeSnapshot' })
