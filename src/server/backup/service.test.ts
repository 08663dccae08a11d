import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { tmpdir } from 'node:os'
import { test } from 'node:test'
import { silentLog } from '../../lib/log.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { BackupConnection } from './connection.ts'
import { serveBackups } from './service.ts'
import { backupSocket } from './wire.ts'

test('backup service: a second backup is refused, and neither keeps the service from its end', async () => {
  const dataDir = await mkdtemp(`${tmpdir()}/atoll-backups-`)
  const runDir = dirname(backupSocket(dataDir))
  await mkdir(runDir)
  try {
    const nothing = async () => undefined
    const backups = { removeDrafts: nothing, removeAllBut: nothing } as never
    const holdKeys = () => ({ [Symbol.dispose]: () => undefined })
    const options = { dataDir, store: {} as never, backups, holdKeys, log: silentLog }
    const service = await serveBackups(options)
    using first = await BackupConnection.open(dataDir)
    assert.deepEqual(await first.ask({ do: 'drop', but: [] }), {})
    using second = await BackupConnection.open(dataDir)
    await refuses(second.ask({ do: 'drop', but: [] }), 'conflict', /another backup is under way/)
    await service[Symbol.asyncDispose]()
    await refuses(first.ask({ do: 'drop', but: [] }), 'unavailable', /the server has ended/)
  } finally {
    await rm(runDir, { recursive: true })
    await rm(dataDir, { recursive: true })
  }
})
