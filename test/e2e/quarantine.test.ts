import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Checkpoint, forkOf, sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { operatorKey } from './tenant.ts'

const allowed = { ATOLL_ALLOW_QUARANTINE: '1' }

async function status(server: AtollServer, id: string): Promise<string> {
  return ((await server.json('GET', `/api/sandboxes/${id}`)) as { status: string }).status
}

/** Starts a sandbox with a file, takes a checkpoint with that file, and hibernates the sandbox. */
async function filled(server: AtollServer): Promise<{ id: string; checkpointId: string }> {
  const id = await startSandbox(server)
  await sh(server, id, 'echo kept > /root/file')
  const checkpointId = await takeCheckpoint(server, id, 'a', 'disk_only')
  await server.json('POST', `/api/sandboxes/${id}/hibernate`)
  return { id, checkpointId }
}

async function assertKept(server: AtollServer, { id, checkpointId }: { id: string; checkpointId: string }) {
  assert.equal(await sh(server, id, 'cat /root/file'), 'kept')
  assert.equal(await sh(server, await forkOf(server, checkpointId), 'cat /root/file'), 'kept')
}

/** Runs the quarantine program; `exit` is the status that it must end with. */
async function quarantine(server: AtollServer, exit: number, ...argv: string[]): Promise<string> {
  const ended = await server.program('src/server/quarantine.ts', argv)
  assert.equal(ended.status, exit, ended.output)
  return ended.output
}

/** Asserts that a start ends with status 2 and returns its output. */
async function refusal(server: AtollServer, env?: Record<string, string>): Promise<string> {
  const refused = await server.refusal(env)
  assert.equal(refused.status, 2, refused.words)
  return refused.words
}

test('start: an empty, a foreign or a new database is refused with a reason, and the right one finds everything as it was', async () => {
  await using server = await AtollServer.start()
  const kept = await filled(server)
  await server.stop()
  const [db, away] = [`${server.dataDir}/db`, `${server.dataDir}/db.away`]
  const [identity, begun] = [`${server.dataDir}/identity`, `${server.dataDir}/identity.new`]
  await rename(db, away)
  const empty = await refusal(server)
  assert.match(empty, new RegExp(`belongs to another database than .*${db}, which is empty`))
  assert.match(empty, new RegExp(`remove the file ${identity}`))
  assert.ok(!(await readdir(server.dataDir)).includes('db'), 'no database was made')

  const id = await readFile(identity, 'utf8')
  await rm(identity)
  assert.match(await refusal(server), /of 2 sandboxes .* 2 that the database does not know/)
  const otherId = (await readFile(identity, 'utf8').catch(() => readFile(begun, 'utf8'))).trim()
  await rm(begun, { force: true })
  // The database of that start is one of another installation.
  await writeFile(identity, id)
  assert.match(await refusal(server, allowed), new RegExp(`echo ${otherId} > ${identity}`))

  await rm(db, { recursive: true })
  await rename(away, db)
  // An installation whose making was interrupted is completed.
  await rename(identity, begun)
  await server.restart()
  assert.equal(await status(server, kept.id), 'hibernated')
  assert.deepEqual(
    (await readdir(server.dataDir)).filter((name) => name.startsWith('identity')),
    ['identity'],
  )
  await assertKept(server, kept)
})

/** With its owners, as a backup is. */
async function copied(from: string, to: string): Promise<void> {
  await promisify(execFile)('cp', ['--archive', from, to])
}

test('quarantine: it takes what an older copy of the database lacks if that is allowed, lists it and restores it', async () => {
  await using server = await AtollServer.start()
  const known = await startSandbox(server)
  await server.stop()
  const [db, older, newer] = ['db', 'db.older', 'db.newer'].map((name) => `${server.dataDir}/${name}`) as [
    string,
    string,
    string,
  ]
  await copied(db, older)
  await server.restart()
  const kept = await filled(server)
  const awake = await startSandbox(server)
  await server.stop()
  await rename(db, newer)
  await copied(older, db)
  assert.match(await refusal(server), /of 4 sandboxes and checkpoints .* 3 that the database does not know/)

  await server.restart({ ...allowed, ATOLL_OPERATOR_KEY: operatorKey })
  assert.equal(await status(server, known), 'running')
  assert.equal((await server.fetch(`/api/sandboxes/${kept.id}`)).status, 404)
  const told = await server.fetch('/api/operator/quarantine', { headers: { 'X-API-Key': operatorKey } })
  const { count, items } = (await told.json()) as { count: number; items: { id: string }[] }
  assert.equal(count, 3)
  assert.deepEqual(new Set(items.map(({ id }) => id)), new Set([kept.id, kept.checkpointId, awake]))
  const listed = await quarantine(server, 0)
  for (const id of [kept.id, kept.checkpointId, awake]) {
    assert.match(listed, new RegExp(`^${id} .*the database does not know it$`, 'm'))
  }
  const doctor = await server.program('src/server/doctor.ts', [])
  assert.match(doctor.output, /^quarantine +works +3 sandboxes and checkpoints, since /m)
  assert.match(await quarantine(server, 2, 'restore', kept.id), /a server runs .* stop it first/)

  await server.stop()
  for (const id of [kept.id, kept.checkpointId]) await quarantine(server, 0, 'restore', id)
  await quarantine(server, 0, 'remove', awake)
  assert.match(await quarantine(server, 0, 'list'), /Nothing .* is in quarantine/)
  await server.restart()
  await assertKept(server, kept)
  const checkpoints = (await server.json('GET', `/api/sandboxes/${kept.id}/checkpoints`)) as Checkpoint[]
  assert.deepEqual(
    checkpoints.map(({ id }) => id),
    [kept.checkpointId],
  )
  assert.equal(await status(server, known), 'running')

  // The newer copy knows what was removed by hand.
  await server.stop()
  await rm(db, { recursive: true })
  await rename(newer, db)
  await server.restart(allowed)
  assert.equal(await status(server, awake), 'error')
  assert.equal(await sh(server, kept.id, 'cat /root/file'), 'kept')
})

test('quarantine: a sandbox with a broken record keeps its disk, is restored once the record is mended, and expires', async () => {
  await using server = await AtollServer.start()
  const kept = await filled(server)
  await server.stop()
  const file = `${server.dataDir}/sandboxes/${kept.id}.json`
  const text = await readFile(file, 'utf8')
  await truncate(file, 0)
  assert.match((await server.refusal()).words, /1 whose record cannot be read/)
  await server.restart(allowed)
  const { status: now, reason } = (await server.json('GET', `/api/sandboxes/${kept.id}`)) as Record<string, string>
  assert.deepEqual([now, reason], ['error', 'host_lost'])
  const used = await server.fetch(`/api/sandboxes/${kept.id}/exec/run`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ cmd: 'true' }),
  })
  assert.match(await used.text(), /its record cannot be read \(it is damaged\); its disk is in quarantine/)

  await server.stop()
  const refused = await server.program('src/server/quarantine.ts', ['restore', kept.id])
  const [, moved = ''] = /mend it in (\S+) first/.exec(refused.output) ?? []
  assert.ok(moved.startsWith(`${server.dataDir}/quarantine/`), refused.output)
  await writeFile(moved, text)
  await quarantine(server, 0, 'restore', kept.id)
  await server.restart()
  assert.equal(await status(server, kept.id), 'hibernated')
  await assertKept(server, kept)

  await server.json('POST', `/api/sandboxes/${kept.id}/hibernate`)
  await server.stop()
  await truncate(file, 0)
  await server.restart(allowed)
  await server.stop()
  const folder = `${server.dataDir}/quarantine`
  const [name = ''] = await readdir(folder)
  await rename(`${folder}/${name}`, `${folder}/${name.replace(/^\d{4}/, '2001')}`)
  await server.restart({ ATOLL_QUARANTINE_DAYS: '0' })
  assert.equal((await readdir(folder)).length, 1, 'without a limit it is kept')
  await server.stop()
  await server.restart()
  assert.deepEqual(await readdir(folder), [])
})

test('start: a server killed in the middle of starts, checkpoints and deletions finds nothing unknown', async () => {
  await using server = await AtollServer.start()
  const source = await startSandbox(server)
  for (const delayMs of [5, 40, 120, 300]) {
    const doomed = await Promise.all([startSandbox(server), startSandbox(server)])
    const old = await Promise.all(
      [`x-${delayMs}`, `y-${delayMs}`].map((name) => takeCheckpoint(server, source, name, 'disk_only')),
    )
    const retention = {
      name: `r-${delayMs}`,
      kind: 'disk_only',
      retentionPolicy: { mode: 'delete_oldest', maxCount: 1 },
    }
    const calls = [
      ...doomed.map((id) => server.json('DELETE', `/api/sandboxes/${id}`)),
      server.json('DELETE', `/api/sandboxes/${source}/checkpoints/${old[0]}`),
      server.json('POST', `/api/sandboxes/${source}/checkpoints`, retention),
      server.json('POST', `/api/sandboxes/from-checkpoint/${old[1]}`, { count: 3 }),
      server.json('POST', '/api/sandboxes', {}),
    ]
    const settled = Promise.allSettled(calls)
    await sleep(delayMs)
    await server.kill()
    await settled
    await server.restart()
    const names = await readdir(`${server.dataDir}/quarantine`).catch(() => [])
    assert.deepEqual(names, [], `killed after ${delayMs} ms`)
    const all = (await server.json('GET', '/api/sandboxes')) as { sandboxID: string }[]
    const others = all.filter(({ sandboxID }) => sandboxID !== source)
    await Promise.all(others.map(({ sandboxID }) => server.json('DELETE', `/api/sandboxes/${sandboxID}`)))
  }
  assert.doesNotMatch(server.output, /"quarantined":\[\{/)
})
