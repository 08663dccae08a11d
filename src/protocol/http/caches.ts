import { z } from 'zod'
import { at, ids } from './examples.ts'
import { secondTime } from './common.ts'

const example = { id: ids.cache, sizeBytes: 104_857_600, lastUsedAt: at.second } as const

export const cache = z
  .object({
    id: z.string().describe('Id of the cache, `ca-…`'),
    sizeBytes: z.int().describe('What it holds'),
    lastUsedAt: secondTime.describe('When a step of a build last had it'),
  })
  .meta({ id: 'BuildCache', examples: [example] })

export const removedCaches = z
  .object({
    removed: z.array(cache).describe('What they were'),
    freedBytes: z.int().describe('What they held together'),
  })
  .meta({ id: 'RemovedBuildCaches', examples: [{ removed: [example], freedBytes: example.sizeBytes }] })
