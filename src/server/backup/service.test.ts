import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { tmpdir } from 'node:os'
import { test, type TestContext } from 'node:test'
import { silentLog } from '../../lib/log.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { BackupConnection } from './connection.ts'
import { serveBackups } from './service.ts'
import { backupSocket } from './wire.ts'

/** Serves backups of a folder of its own. `removeDrafts` is what each of them ends with. */
async function serving(context: TestContext, removeDrafts = async (): Promise<void> => {}) {
  const dataDir = await mkdtemp(`${tmpdir()}/atoll-backups-`)
  const runDir = dirname(backupSocket(dataDir))
  await mkdir(runDir)
  const backups = { removeDrafts, removeAllBut: async () => undefined } as never
  const holdKeys = () => ({ [Symbol.dispose]: () => undefined })
  const service = await serveBackups({ dataDir, store: {} as never, backups, holdKeys, log: silentLog })
  context.after(async () => {
    await service[Symbol.asyncDispose]()
    await rm(runDir, { recursive: true })
    await rm(dataDir, { recursive: true })
  })
  return { dataDir, service }
}

test('backup service: a second backup is refused, and neither keeps the service from its end', async (context) => {
  const { dataDir, service } = await serving(context)
  using first = await BackupConnection.open(dataDir)
  assert.deepEqual(await first.ask({ do: 'drop', but: [] }), {})
  using second = await BackupConnection.open(dataDir)
  await refuses(second.ask({ do: 'drop', but: [] }), 'conflict', /another backup is under way/)
  await service[Symbol.asyncDispose]()
  await refuses(first.ask({ do: 'drop', but: [] }), 'unavailable', /the server has ended/)
})

test('backup service: one whose program has ended is waited for while what it made is removed', async (context) => {
  const removing = Promise.withResolvers<void>()
  const removed = Promise.withResolvers<void>()
  let isServing = false
  const { dataDir } = await serving(context, async () => {
    // The start of the service removes too.
    if (!isServing) return
    removing.resolve()
    await removed.promise
  })
  isServing = true
  {
    using first = await BackupConnection.open(dataDir)
    assert.deepEqual(await first.ask({ do: 'drop', but: [] }), {})
  }
  await removing.promise
  using second = await BackupConnection.open(dataDir)
  const answer = second.ask({ do: 'drop', but: [] })
  using third = await BackupConnection.open(dataDir)
  await refuses(third.ask({ do: 'drop', but: [] }), 'conflict', /another backup is under way/)
  removed.resolve()
  assert.deepEqual(await answer, {})
})
