import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { cachedSandboxStore } from '../../src/store/index.ts'
import { startTestCluster } from '../support/database.ts'
import { openFreshStore } from './kit.ts'
import { sandboxStoreConformance, storeConformance } from './store.ts'

const dataDir = await mkdtemp(join(tmpdir(), 'atoll-store-'))
const cluster = await startTestCluster(dataDir)
after(async () => {
  await cluster.stop()
  await rm(dataDir, { recursive: true })
})

await storeConformance('private cluster', () => openFreshStore(cluster.adminUrl))
await storeConformance('server', () => openFreshStore())
await sandboxStoreConformance('behind the cache', async () => {
  const store = await openFreshStore()
  return { ...store, sandboxes: cachedSandboxStore(store.sandboxes) }
})
