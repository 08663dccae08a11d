import assert from 'node:assert/strict'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import type { SandboxService } from '../sandbox/index.ts'
import type { ImageChange } from './image.ts'
import type { RegistryCredentials } from './registry-credentials.ts'
import { defaultImageLimits, type Image, Images, type ImageStore } from './index.ts'

const dayMs = 24 * 3_600_000
const orgId = 'org-1'

/** Of images that share nothing. */
class Rows {
  readonly all = new Map<string, Image>()
  readonly deletedCheckpoints: string[] = []

  add(id: string, lastUsedAt: Date, name?: string): void {
    const manifest = { base: 'base', steps: [] }
    const times = { createdAt: lastUsedAt, lastUsedAt }
    const row = { id, orgId, contentHash: id, layerHashes: [], manifest, memoryMb: 1024, status: 'ready' as const }
    const named = name === undefined ? {} : { name }
    this.all.set(id, { ...row, ...named, ...times, checkpointId: `cp-${id}`, isDetached: false, isPublic: false })
  }

  get store(): ImageStore {
    const known: Partial<ImageStore> = {
      imageNamed: async (name) => [...this.all.values()].find((row) => row.name === name),
      image: async (id) => this.all.get(id),
      publicImageNamed: async () => undefined,
      unusedImages: async (before) => [...this.all.values()].filter((row) => !row.name && row.lastUsedAt < before),
      updateImage: async (id, change: ImageChange) => {
        const row = { ...(this.all.get(id) as Image), ...change }
        this.all.set(id, row)
        return row
      },
      deleteImage: async (id) => this.all.delete(id),
      deleteUnusedLayers: async () => [],
      imageCheckpointIds: async () => [...this.all.values()].flatMap(({ checkpointId = '' }) => checkpointId),
    }
    return known as ImageStore
  }

  get sandboxes(): SandboxService {
    const checkpoints = {
      settled: async (_org: string, id: string) => ({ id, sandboxId: 'sb-1', status: 'ready' }),
      delete: async (_org: string, _sandboxId: string, id: string) => void this.deletedCheckpoints.push(id),
    }
    return { checkpoints } as unknown as SandboxService
  }
}

test('unused images: one without a name goes with its checkpoint thirty days after its last use', async (t) => {
  const begun = Date.UTC(2026, 0, 1)
  t.mock.timers.enable({ apis: ['Date'], now: begun })
  const rows = new Rows()
  const ignore = () => undefined
  const images = new Images({
    store: rows.store,
    sandboxes: rows.sandboxes,
    registryCredentials: {} as RegistryCredentials,
    dir: join(tmpdir(), 'atoll-no-builds'),
    exportDir: join(tmpdir(), 'atoll-no-exports'),
    logDir: join(tmpdir(), 'atoll-no-logs'),
    contextDir: join(tmpdir(), 'atoll-no-contexts'),
    assertDiskTakesData: ignore,
    limits: defaultImageLimits,
    sandboxLimits: { memoryMbMin: 128, memoryMbMax: 4096 },
    signingSecret: 'secret',
    definitions: new Map(),
    operatorOrgId: async () => orgId,
    log: { debug: ignore, info: ignore, warn: ignore, error: ignore, fatal: ignore, trace: ignore } as never,
  })
  for (const id of ['img-idle', 'img-used', 'img-named'])
    rows.add(id, new Date(begun), id === 'img-named' ? 'named' : undefined)
  /** What is left when those are removed that have not been used for thirty days. */
  const left = async (day: number): Promise<string[]> => {
    t.mock.timers.setTime(begun + day * dayMs)
    await images.removeUnused(new Date(begun + (day - 30) * dayMs), new AbortController().signal)
    return [...rows.all.keys()]
  }
  assert.deepEqual(await left(29), ['img-idle', 'img-used', 'img-named'])
  await images.findNamed(orgId, 'img-used')
  assert.deepEqual(await left(31), ['img-used', 'img-named'])
  assert.deepEqual(rows.deletedCheckpoints, ['cp-img-idle'])
  assert.deepEqual(await left(58), ['img-used', 'img-named'])
  assert.deepEqual(await left(60), ['img-named'])
})
