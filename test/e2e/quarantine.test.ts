import assert from 'node:assert/strict'
import { cp, readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Checkpoint, forkOf, sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const allowed = { ATOLL_ALLOW_QUARANTINE: '1' }
const quarantine = 'src/server/quarantine.ts'

async function hibernate(server: AtollServer, id: string): Promise<void> {
  await server.json('POST', `/api/sandboxes/${id}/hibernate`)
}

async function status(server: AtollServer, id: string): Promise<string> {
  return ((await server.json('GET', `/api/sandboxes/${id}`)) as { status: string }).status
}

/** One that sleeps with a file, and a checkpoint with that file. */
async function filled(server: AtollServer): Promise<{ id: string; checkpointId: string }> {
  const id = await startSandbox(server)
  await sh(server, id, 'echo kept > /root/file')
  const checkpointId = await takeCheckpoint(server, id, 'a', 'disk_only')
  await hibernate(server, id)
  return { id, checkpointId }
}

async function assertKept(server: AtollServer, { id, checkpointId }: { id: string; checkpointId: string }) {
  assert.equal(await sh(server, id, 'cat /root/file'), 'kept')
  assert.equal(await sh(server, await forkOf(server, checkpointId), 'cat /root/file'), 'kept')
}

test('a start with an empty or a foreign database is refused in words, and the right one finds everything as it was', async () => {
  await using server = await AtollServer.start()
  await using other = await AtollServer.start()
  const kept = await filled(server)
  await Promise.all([server.stop(), other.stop()])
  const [db, away] = [`${server.dataDir}/db`, `${server.dataDir}/db.away`]
  await rename(db, away)
  const empty = await server.refusal()
  assert.equal(empty.status, 2)
  assert.match(empty.words, new RegExp(`belongs to another database than .*${db}, which is empty`))
  assert.match(empty.words, new RegExp(`remove the file ${server.dataDir}/identity`))
  assert.ok(!(await readdir(server.dataDir)).includes('db'), 'no database was made')

  await cp(`${other.dataDir}/db`, db, { recursive: true })
  const foreign = await server.refusal(allowed)
  assert.equal(foreign.status, 2)
  const id = (await readFile(`${other.dataDir}/identity`, 'utf8')).trim()
  assert.match(foreign.words, new RegExp(`echo ${id} > ${server.dataDir}/identity`))

  await rm(db, { recursive: true })
  await rename(away, db)
  await server.restart()
  await assertKept(server, kept)
})

test('an installation whose making was cut off is completed', async () => {
  await using server = await AtollServer.start()
  const id = await startSandbox(server)
  await hibernate(server, id)
  await server.stop()
  const [joined, begun] = [`${server.dataDir}/identity`, `${server.dataDir}/identity.new`]
  await rename(joined, begun)
  await server.restart()
  assert.equal(await status(server, id), 'hibernated')
  assert.deepEqual(
    (await readdir(server.dataDir)).filter((name) => name.startsWith('identity')),
    ['identity'],
  )
})

test('a data directory that begins anew with an empty database is asked about what is there', async () => {
  await using server = await AtollServer.start()
  const kept = await filled(server)
  await server.stop()
  const names = ['db', 'identity'] as const
  for (const name of names) await rename(`${server.dataDir}/${name}`, `${server.dataDir}/${name}.away`)
  const { status: exit, words } = await server.refusal()
  assert.deepEqual([exit, /of 2 sandboxes .* 2 that the database does not know/.test(words)], [2, true], words)
  for (const name of names) {
    await rm(`${server.dataDir}/${name}`, { recursive: true })
    await rename(`${server.dataDir}/${name}.away`, `${server.dataDir}/${name}`)
  }
  await server.restart()
  await assertKept(server, kept)
})

test('what an older copy of the database lacks goes to quarantine if that is allowed, is listed, and can be restored', async () => {
  await using server = await AtollServer.start()
  const known = await startSandbox(server)
  await server.stop()
  const [db, older, newer] = ['db', 'db.older', 'db.newer'].map((name) => `${server.dataDir}/${name}`) as [
    string,
    string,
    string,
  ]
  await cp(db, older, { recursive: true })
  await server.restart()
  const kept = await filled(server)
  const awake = await startSandbox(server)
  await server.stop()
  await rename(db, newer)
  await cp(older, db, { recursive: true })
  const { status: exit, words } = await server.refusal()
  assert.equal(exit, 2)
  assert.match(words, /of 4 sandboxes and checkpoints .* 3 that the database does not know/)

  await server.restart(allowed)
  assert.equal(await status(server, known), 'running')
  assert.equal((await server.fetch(`/api/sandboxes/${kept.id}`)).status, 404)
  const listed = await server.program(quarantine, [])
  assert.equal(listed.status, 0, listed.output)
  for (const id of [kept.id, kept.checkpointId, awake]) {
    assert.match(listed.output, new RegExp(`^${id} .*the database does not know it$`, 'm'))
  }
  const doctor = await server.program('src/server/doctor.ts', [])
  assert.match(doctor.output, /^quarantine +works +3 sandboxes and checkpoints, since /m)
  const refused = await server.program(quarantine, ['restore', kept.id])
  assert.deepEqual([refused.status, /a server runs .* stop it first/.test(refused.output)], [2, true], refused.output)

  await server.stop()
  for (const id of [kept.id, kept.checkpointId]) {
    const restored = await server.program(quarantine, ['restore', id])
    assert.equal(restored.status, 0, restored.output)
  }
  const removed = await server.program(quarantine, ['remove', awake])
  assert.equal(removed.status, 0, removed.output)
  assert.match((await server.program(quarantine, ['list'])).output, /Nothing .* is in quarantine/)
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

test('a sandbox whose record cannot be read says so, keeps its disk, and is restored once the record is mended', async () => {
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
  assert.match(await used.text(), /its record cannot be read; its disk is in quarantine/)

  await server.stop()
  const refused = await server.program(quarantine, ['restore', kept.id])
  const [, moved = ''] = /mend it in (\S+) first/.exec(refused.output) ?? []
  assert.ok(moved.startsWith(`${server.dataDir}/quarantine/`), refused.output)
  await writeFile(moved, text)
  const restored = await server.program(quarantine, ['restore', kept.id])
  assert.equal(restored.status, 0, restored.output)
  await server.restart()
  assert.equal(await status(server, kept.id), 'hibernated')
  await assertKept(server, kept)
})

test('what lies in quarantine for longer than it is kept is removed at a start', async () => {
  await using server = await AtollServer.start()
  const { id } = await filled(server)
  await server.stop()
  await truncate(`${server.dataDir}/sandboxes/${id}.json`, 0)
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

test('a server that is killed in the middle of starts, checkpoints and deletions finds nothing that it does not know', async () => {
  await using server = await AtollServer.start()
  const source = await startSandbox(server)
  for (const delayMs of [5, 20, 40, 80, 120, 200, 350]) {
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
    for (const { sandboxID } of all)
      if (sandboxID !== source) await server.json('DELETE', `/api/sandboxes/${sandboxID}`)
  }
  assert.doesNotMatch(server.output, /"quarantined":\[\{/)
})
