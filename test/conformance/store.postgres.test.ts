import { after } from 'node:test'
import { openStore } from '../../src/store/index.ts'
import { storeConformance } from './store.ts'
import { freshDatabase } from './store-databases.ts'

const drops: (() => Promise<void>)[] = []

after(async () => {
  for (const drop of drops) await drop()
})

storeConformance('PostgreSQL', async () => {
  const { url, drop } = await freshDatabase()
  drops.push(drop)
  return await openStore({ databaseUrl: url })
})
