import { z } from 'zod'
import { at, ids, showExample } from './examples.ts'
import { secondTime, volumeName as nameOfVolume } from './common.ts'

const volumeName = nameOfVolume.describe('1 to 63 of `a-z 0-9 _ . -`, the first a letter or digit')

const mountFields = {
  name: z.string().describe('Name of the volume'),
  path: z.string().describe('Where the sandbox has it: an absolute path without `..`'),
}

/** In requests that start sandboxes. */
export const mounts = z
  .array(
    z.strictObject({
      ...mountFields,
      readOnly: z.boolean().default(false).describe('Any number of sandboxes may read, one may write'),
    }),
  )
  .describe('Volumes to mount; none lies within another. At most 16')

const mounted = {
  ...mountFields,
  readOnly: z.boolean().describe('Whether the sandbox cannot write to it'),
}

/** In answers. */
export const mountedVolumes = z.array(z.object(mounted).meta({ id: 'MountedVolume' }))

export const checkpointVolumes = z.array(
  z
    .object({
      ...mounted,
      generation: z
        .int()
        .optional()
        .describe('That of the volume when the checkpoint was made; an equal one says that it has not changed since'),
    })
    .meta({ id: 'CheckpointVolume' }),
)

export const createVolume = z.object({
  name: volumeName,
  sizeMB: z.int().min(1).optional().meta({
    minimum: 16,
    maximum: 1_048_576,
    description: 'What it may hold, in MiB; default 10240, or that of `from`',
  }),
  from: z.string().min(1).optional().describe('The volume, or `volume@snapshot`, that it begins as a clone of'),
})
showExample(createVolume, { name: 'tools', sizeMB: 1024 })

const volumeFields = {
  id: z.string().describe('Id of the volume, `vol-…`'),
  name: z.string().describe('Name given at its creation'),
  sizeMB: z.int().describe('What it may hold, in MiB'),
  from: z.string().optional().describe('What it is a clone of'),
  createdAt: secondTime.describe('When it was made'),
}

const example = { id: ids.volume, name: 'tools', sizeMB: 1024, createdAt: at.second } as const

export const volume = z.object(volumeFields).meta({ id: 'Volume', examples: [example] })

export const volumeDetails = z
  .object({
    ...volumeFields,
    usedBytes: z
      .number()
      .optional()
      .describe('What it holds, shared with clones or not; absent where its data is missing'),
    generation: z
      .int()
      .optional()
      .describe('Grows with the changes that have reached the disk, which takes up to half a minute'),
    mountedBy: z
      .array(
        z.object({
          sandboxID: z.string().describe('Id of the sandbox, which may hibernate'),
          path: z.string().describe('Where it has the volume'),
          readOnly: z.boolean().describe('Whether it cannot write to it'),
        }),
      )
      .describe('The sandboxes that have it'),
  })
  .meta({ id: 'VolumeDetails', examples: [{ ...example, usedBytes: 4096, generation: 7, mountedBy: [] }] })

export const createVolumeSnapshot = z.object({ name: volumeName })
showExample(createVolumeSnapshot, { name: 'monday' })

export const volumeSnapshot = z
  .object({
    id: z.string().describe('Id of the snapshot, `vol-…`'),
    name: z.string().describe('Name given at its creation'),
    sizeMB: z.int().describe('Least size of a clone, in MiB'),
    createdAt: secondTime.describe('When it was made'),
  })
  .meta({ id: 'VolumeSnapshot', examples: [{ ...example, name: 'monday' }] })
