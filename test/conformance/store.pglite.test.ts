import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { openStore } from '../../src/store/index.ts'
import { storeConformance } from './store.ts'

const folders: string[] = []

after(async () => {
  for (const folder of folders) await rm(folder, { recursive: true })
})

storeConformance('PGlite', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-store-'))
  folders.push(dataDir)
  return await openStore({ dataDir })
})
