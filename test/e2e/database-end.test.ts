/** The embedded database cannot go on, as on a full disk: the server must neither hang nor serve on without it. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { rename } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const mebibyte = 1024 * 1024
/** Far more than PostgreSQL's log takes in the files that it has open. */
const writesMax = 400

test('database: a server whose embedded one fails ends at once with the reason, and the next start has all that was acknowledged', async () => {
  await using server = await AtollServer.start()
  const log = join(server.dataDir, 'db', 'pg_wal')
  const checkpoint = await takeCheckpoint(server, await startSandbox(server), 'a', 'disk_only')
  const patches = `/api/sandboxes/checkpoints/${checkpoint}/patches`
  await rename(log, `${log}.away`)
  const acknowledged: string[] = []
  try {
    for (let count = 0; count < writesMax; count++) {
      // What PostgreSQL cannot compress.
      const script = `# ${randomBytes(0.12 * mebibyte).toString('hex')}`
      const patch = { script, description: `${count}`, strategy: 'on_resume' }
      const written = (await server.json('POST', patches, patch)) as { patch: { id: string } }
      acknowledged.push(written.patch.id)
    }
    assert.fail('the database needed no new file')
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error
  }
  assert.equal(await server.ended(), 1)
  assert.match(server.output, /the embedded database has ended; this server ends at once/)
  assert.match(server.output, /could not create file \\?"pg_wal/)

  await rename(`${log}.away`, log)
  await server.restart()
  const ids = new Set(((await server.json('GET', patches)) as { id: string }[]).map(({ id }) => id))
  assert.ok(acknowledged.length > 0)
  for (const id of acknowledged) assert.ok(ids.has(id), `patch ${id} is gone`)
})
