/** The private database ends by itself: no acknowledged write is lost, the API says so meanwhile, and it comes back alone. */
import assert from 'node:assert/strict'
import { readFile, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

async function postmaster(server: AtollServer): Promise<number> {
  return Number.parseInt(await readFile(join(server.dataDir, 'db/postmaster.pid'), 'utf8'), 10)
}

/** Kills its first process, if it has one now. */
async function killDatabase(server: AtollServer): Promise<void> {
  try {
    process.kill(await postmaster(server), 'SIGKILL')
  } catch (error) {
    assert.match(String(error), /ESRCH|ENOENT/)
  }
}

/** Writes until a write fails, and returns the ids of those that were acknowledged. */
async function writeUntilRefused(server: AtollServer, patches: string): Promise<string[]> {
  const acknowledged: string[] = []
  for (let count = 0; ; count++) {
    const patch = { script: `# ${count}`, description: `${count}`, strategy: 'on_resume' }
    const answer = await server.fetch(patches, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(patch),
    })
    if (!answer.ok) {
      assert.equal(answer.status, 503, await answer.text())
      return acknowledged
    }
    const written = (await answer.json()) as { patch: { id: string } }
    acknowledged.push(written.patch.id)
    // The first is enough to have something to lose; the rest meet the end, or the next one where it has come back before them.
    if (count % 20 === 0) await killDatabase(server)
  }
}

async function untilReady(server: AtollServer): Promise<void> {
  while (!(await server.fetch('/readyz')).ok) await sleep(50)
}

test('database: killed, or unable to go on, it comes back by itself with all that was acknowledged, and sandboxes run on', async () => {
  await using server = await AtollServer.start()
  const sandbox = await startSandbox(server)
  const checkpoint = await takeCheckpoint(server, sandbox, 'a', 'disk_only')
  const patches = `/api/sandboxes/checkpoints/${checkpoint}/patches`
  const listed = async () => new Set(((await server.json('GET', patches)) as { id: string }[]).map(({ id }) => id))

  const acknowledged = await writeUntilRefused(server, patches)
  await untilReady(server)
  const after = await listed()
  assert.ok(acknowledged.length > 0)
  for (const id of acknowledged) assert.ok(after.has(id), `patch ${id} is gone`)

  // Its log is gone, as on a disk that fails: it cannot start again, and says why, until the log is back.
  const log = join(server.dataDir, 'db/pg_wal')
  await rename(log, `${log}.away`)
  // A process that wants a new piece of the log may have ended it just now.
  await killDatabase(server)
  while (!server.output.includes('the database could not be started again')) await sleep(50)
  assert.equal((await server.fetch('/readyz')).status, 503)
  assert.match(server.output, /required WAL directory/)
  await rename(`${log}.away`, log)
  await untilReady(server)
  for (const id of acknowledged) assert.ok((await listed()).has(id), `patch ${id} is gone`)
  const { status } = (await server.json('GET', `/api/sandboxes/${sandbox}`)) as { status: string }
  assert.equal(status, 'running')
})

test('database: it outlives a killed server, whose next life finds it with its processes', async () => {
  await using server = await AtollServer.start()
  const pid = await postmaster(server)
  const sandbox = await startSandbox(server)
  await server.kill()
  assert.equal(await postmaster(server), pid)
  await server.restart()
  assert.equal(await postmaster(server), pid)
  assert.match(server.output, /the database that runs is adopted/)
  await server.json('GET', `/api/sandboxes/${sandbox}`)
  await server.stop()
  await assert.rejects(postmaster(server), { code: 'ENOENT' })
})
