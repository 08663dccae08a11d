/** Requests under an `Idempotency-Key` whose server is killed between the effect and the answer, or in the middle of the effect. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { execute, freshDatabase } from '../store/kit.ts'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { sh, startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { createSession, getSession, type Session } from './session-client.ts'

/** Of the lock at which the database holds a server up. */
const barrierKey = 470_011
/** A server has ten connections, and a statement that is held up keeps one. */
const callsAtOnce = 6

const database = await freshDatabase()
const server = await AtollServer.startForFile({ env: { DATABASE_URL: database.url } })
after(() => database.drop())

interface Call {
  path: string
  body: object
  /** How often it has had its effect. */
  count(): Promise<number>
  times?: number
}

/** The answer is kept. */
const answering = { event: 'insert or update on idempotency_keys', when: 'new.status_code is not null' }
/** The boot of the sandbox with this timeout has come to its end; others may start in the background. */
const timeoutOfHeld = 1003
const started = {
  event: 'update on sandboxes',
  when: `old.status = 'creating' and new.status = 'running' and new.timeout_seconds = ${timeoutOfHeld}`,
}

type Json = Record<string, unknown>

const get = async <Result = Json[]>(path: string): Promise<Result> => (await server.json('GET', path)) as Result
const post = async (path: string, body: object): Promise<Json> => (await server.json('POST', path, body)) as Json

async function send({ path, body }: Call, key: string): Promise<{ status: number; body: Json; replayed: boolean }> {
  const headers = { 'Idempotency-Key': key, 'Content-Type': 'application/json' }
  const answer = await server.fetch(path, { method: 'POST', headers, body: JSON.stringify(body) })
  const replayed = answer.headers.get('idempotent-replayed') === 'true'
  return { status: answer.status, body: (await answer.json()) as Json, replayed }
}

/**
 * Sends these calls, kills the server while the database holds all of them up at a statement of this kind, which is then lost, and
 * starts it again.
 */
async function killedAt({ event, when }: typeof answering, calls: readonly Call[], keys: string[]): Promise<void> {
  await execute(
    database.url,
    `create function hold_up() returns trigger language plpgsql as
      $$ begin perform pg_advisory_xact_lock_shared(${barrierKey}); return new; end $$;
    create trigger hold_up before ${event} for each row when (${when}) execute function hold_up()`,
  )
  const barrier = new pg.Client({ connectionString: database.url })
  await barrier.connect()
  try {
    await barrier.query('select pg_advisory_lock($1)', [barrierKey])
    const sent = calls.map((call, index) =>
      send(call, keys[index]!).then(
        (answer) => assert.fail(`${call.path} was answered: ${JSON.stringify(answer)}`),
        (error: unknown) => assert.ok(error instanceof TypeError, String(error)),
      ),
    )
    const waiting = `select 1 from pg_locks where locktype = 'advisory' and objid = ${barrierKey} and not granted`
    const held = async () => {
      while ((await barrier.query(waiting)).rowCount !== calls.length) await sleep(10)
    }
    await Promise.race([held(), Promise.all(sent)])
    await server.kill()
    await Promise.all(sent)
    const others = 'select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()'
    await barrier.query(`select pg_terminate_backend(pid, 5000) from (${others}) as others`)
  } finally {
    const ended = once(barrier, 'end')
    await barrier.end()
    await ended
  }
  await execute(database.url, 'drop function hold_up() cascade')
  await server.restart()
}

async function idle(prompt: string, userId: string): Promise<Session> {
  const session = await createSession(server, prompt, { user_id: userId })
  await readEvents(server, session.id, isTurnComplete)
  return session
}

test('idempotency: a request whose server is killed between the effect and the answer has its effect once, and is answered', async () => {
  const id = await startSandbox(server)
  const checkpoints = `/api/sandboxes/${id}/checkpoints`
  const checkpoint = (await post(checkpoints, { name: 'first', kind: 'disk_only' }))['id'] as string
  await sh(server, id, `printf '#!/bin/sh\\necho x >>/tmp/pty; exec sleep 1000\\n' >/tmp/shell; chmod +x /tmp/shell`)
  const [talked, forked, lost] = await Promise.all([
    idle('A page about owls', 'talker'),
    idle('A page about elms', 'forker'),
    idle('A page about mice', 'loser'),
  ])
  await server.json('DELETE', `/api/sandboxes/${lost.sandboxId}`)
  while ((await getSession(server, lost.id)).activity !== 'failed') await sleep(20)

  const sandboxes = async (timeout: number) =>
    (await get('/api/sandboxes')).filter((sandbox) => sandbox['timeout'] === timeout).length
  const sessionsOf = async (userId: string) =>
    (await get<{ data: Json[] }>(`/v1/sessions?user_id=${userId}`)).data.length
  const lines = async (path: string) => Number(await sh(server, id, `wc -l <${path}`))
  const patches = `/api/sandboxes/checkpoints/${checkpoint}/patches`
  const append = (path: string) => ({ cmd: 'sh', args: ['-c', `echo x >>${path}`] })
  const calls: Call[] = [
    { path: '/api/sandboxes', body: { timeout: 1001, previewAuth: {} }, count: () => sandboxes(1001) },
    {
      path: `/api/sandboxes/from-checkpoint/${checkpoint}`,
      body: { timeout: 1002, count: 2 },
      count: () => sandboxes(1002),
      times: 2,
    },
    {
      path: checkpoints,
      body: { name: 'once', kind: 'disk_only' },
      count: async () => (await get(checkpoints)).length - 1,
    },
    { path: patches, body: { script: 'true' }, count: async () => (await get(patches)).length },
    {
      path: `/api/sandboxes/${id}/preview`,
      body: { port: 3000, authConfig: { scheme: 'bearer' } },
      count: async () => (await get(`/api/sandboxes/${id}/preview`)).length,
    },
    { path: `/api/sandboxes/${id}/exec`, body: append('/tmp/exec'), count: () => lines('/tmp/exec') },
    { path: `/api/sandboxes/${id}/exec/run-async`, body: append('/tmp/async'), count: () => lines('/tmp/async') },
    { path: `/api/sandboxes/${id}/pty`, body: { shell: '/tmp/shell' }, count: () => lines('/tmp/pty') },
    { path: '/v1/sessions', body: { prompt: 'A page about newts', user_id: 'once' }, count: () => sessionsOf('once') },
    {
      path: `/v1/sessions/${talked.id}/messages`,
      body: { message: 'Add a section about mice', user_id: 'talker' },
      count: async () =>
        (await getSession(server, talked.id)).messages.filter(({ role }) => role === 'user').length - 1,
    },
    {
      path: `/v1/sessions/${forked.id}/fork`,
      body: { user_id: 'forker' },
      count: async () => (await sessionsOf('forker')) - 1,
    },
    {
      path: `/v1/sessions/${lost.id}/restart`,
      body: { user_id: 'loser' },
      count: async () =>
        (await getSession(server, lost.id)).events.filter(({ message }) => message.includes('in a new sandbox')).length,
    },
    {
      path: `/v1/sessions/${talked.id}/tokens`,
      body: { user_id: 'talker', scope: 'read' },
      count: async () => 1,
    },
  ]
  for (let start = 0; start < calls.length; start += callsAtOnce) {
    const some = calls.slice(start, start + callsAtOnce)
    const keys = some.map(({ path }, index) => `${path}-${start + index}`)
    await killedAt(answering, some, keys)
    for (const [index, call] of some.entries()) {
      const { path, count, times = 1 } = call
      const answer = await send(call, keys[index]!)
      assert.ok(answer.status < 300, `${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
      assert.equal(await count(), times, path)
      const again = await send(call, keys[index]!)
      assert.deepEqual([again.status, again.body, again.replayed], [answer.status, answer.body, true], path)
      assert.equal(await count(), times, path)
    }
  }
})

test('idempotency: a sandbox whose server is killed while it starts is started by the repeat, and only one exists', async () => {
  const call: Call = { path: '/api/sandboxes', body: { timeout: timeoutOfHeld }, count: async () => 1 }
  await killedAt(started, [call], ['midway'])
  const { status, body } = await send(call, 'midway')
  assert.deepEqual([status, body['status']], [201, 'running'])
  const found = (await get('/api/sandboxes')).filter((sandbox) => sandbox['timeout'] === timeoutOfHeld)
  assert.deepEqual(
    found.map((sandbox) => [sandbox['sandboxID'], sandbox['status']]),
    [[body['sandboxID'], 'running']],
  )
  assert.equal(await sh(server, body['sandboxID'] as string, 'echo ready'), 'ready')
})
