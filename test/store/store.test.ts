import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { cachedSandboxStore, openStore } from '../../src/store/index.ts'
import { imageDir } from '../support/images.ts'
import { freshDatabase } from './kit.ts'
import { sandboxStoreConformance, storeConformance } from './store.ts'

const cleanups: (() => Promise<void>)[] = []
after(async () => {
  for (const cleanup of cleanups) await cleanup()
})

async function openEmbedded() {
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-store-'))
  cleanups.push(() => rm(dataDir, { recursive: true }))
  return await openStore({ dataDir, imageDir })
}

await storeConformance('PGlite', openEmbedded)
await sandboxStoreConformance('PGlite behind the cache', async () => {
  const store = await openEmbedded()
  return { ...store, sandboxes: cachedSandboxStore(store.sandboxes) }
})
await storeConformance('PostgreSQL', async () => {
  const { url, drop } = await freshDatabase()
  cleanups.push(drop)
  return await openStore({ databaseUrl: url })
})
