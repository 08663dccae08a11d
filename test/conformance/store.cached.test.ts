import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { cachedSandboxStore, openStore } from '../../src/store/index.ts'
import { imageDir } from '../support/images.ts'
import { storeConformance } from './store.ts'

const folders: string[] = []

after(async () => {
  for (const folder of folders) await rm(folder, { recursive: true })
})

storeConformance('PGlite behind the cache', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-store-'))
  folders.push(dataDir)
  const store = await openStore({ dataDir, imageDir })
  return { ...store, sandboxes: cachedSandboxStore(store.sandboxes) }
})
