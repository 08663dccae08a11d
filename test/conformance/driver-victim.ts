/** A server that does nothing but create, checkpoint, fork, hibernate and remove sandboxes, to be killed in the middle of it. */
import { randomUUID } from 'node:crypto'
import { createOciDriver, ociRuntimes } from '../../src/runtime/index.ts'
import { recordedIds } from '../../src/runtime/host/records.ts'
import type { Registry } from '../../src/runtime/index.ts'
import type { CheckpointKind } from '../../src/sandbox/ports/runtime-driver.ts'

const { sandboxIds, cycled, imported, mounting, ...options } = JSON.parse(process.argv[2] ?? '{}') as {
  dataDir: string
  imageDir: string
  subnet: string
  lazyMemoryBytesMin?: number
  registries?: Registry[]
  sandboxIds: string[]
  /** Instead, this one is saved and brought back again and again. */
  cycled?: string
  /** Instead, this image is imported. */
  imported?: string
  /** Instead, things are mounted in this one again and again. */
  mounting?: string
}
const driver = createOciDriver({ runtime: ociRuntimes.runc, ...options })
const abandoned = {
  sandboxIds: (await recordedIds(`${options.dataDir}/sandboxes`)).filter((id) => !sandboxIds.includes(id)),
  checkpointIds: await recordedIds(`${options.dataDir}/checkpoints`),
}
await driver.open({ sandboxIds, checkpointIds: [], abandoned })
process.send?.('open')

async function churn(kind: CheckpointKind): Promise<never> {
  for (;;) {
    const word = randomUUID().slice(0, 8)
    const spec = { image: 'base', cpuCount: 1, memoryMb: 128, diskMb: 64 }
    await driver.create({ ...spec, id: `sb-source-${word}` })
    await driver.checkpoint(`sb-source-${word}`, `cp-${word}`, kind)
    await driver.create({ ...spec, id: `sb-fork-${word}`, from: { checkpointId: `cp-${word}` } })
    await driver.hibernate(`sb-fork-${word}`)
    await driver.wake({ ...spec, id: `sb-fork-${word}` })
    await driver.restore({ ...spec, id: `sb-source-${word}` }, `cp-${word}`)
    await driver.delete(`sb-source-${word}`)
    await driver.delete(`sb-fork-${word}`)
    await driver.deleteCheckpoint(`cp-${word}`)
  }
}

async function cycle(id: string): Promise<never> {
  const spec = { id, image: 'base', cpuCount: 1, memoryMb: 256, diskMb: 256 }
  for (;;) {
    await driver.wake(spec)
    await driver.checkpoint(id, `cp-${randomUUID().slice(0, 8)}`, 'full')
    await driver.hibernate(id)
  }
}

/** All kinds at once, and a new cache each time. */
async function mount(id: string): Promise<never> {
  const mounts = driver.stepMounts!
  for (;;) {
    const cache = `ca-victim-${randomUUID().slice(0, 8)}`
    await mounts.makeCache(cache, { mode: 0o755, uid: 0, gid: 0 })
    const mounted = [
      await mounts.attach(id, '/victim/scratch', { type: 'scratch', bytes: 1024 ** 2 }),
      await mounts.attach(id, '/victim/cache', { type: 'cache', id: cache, readOnly: false }),
      await mounts.attach(id, '/victim/tmp', { type: 'tmpfs', bytes: 1024 ** 2 }),
    ]
    for (const one of mounted.toReversed()) await one.detach()
  }
}

if (mounting !== undefined) await mount(mounting)
if (imported !== undefined) await driver.importImage!('cp-imported', { reference: imported })
if (cycled !== undefined) await cycle(cycled)
await Promise.all([churn('disk_only'), churn(driver.capabilities.fullCheckpoints ? 'full' : 'disk_only')])
