/** Sessions in real sandboxes while the server, their agents and their sandboxes are killed, again and again. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { randomInt } from 'node:crypto'
import { AtollServer } from './server.ts'
import { settled } from './settled.ts'
import { Host } from './host.ts'
import { Killer } from './soak/killer.ts'
import { Random } from './soak/random.ts'
import { User } from './soak/session-user.ts'
import { assertWholeSession } from './soak/session-integrity.ts'

/** A minute in every run of the tests; `npm run test:soak` asks for half an hour. */
const seconds = Number(process.env['ATOLL_SOAK_SECONDS'] || 60)
/** Given again, it makes the same choices again. */
const seed = Number(process.env['ATOLL_SOAK_SEED'] || randomInt(2 ** 31))
const usersAtOnce = 4

interface Listed {
  sandboxID: string
  status: string
}

/** What one user does, session after session: acts, rests, is compared with what the service says, and deletes it. */
async function live(server: AtollServer, name: string, time: AbortSignal, living: Map<string, User>): Promise<number> {
  for (let life = 0; ; life += 1) {
    const user = new User(server, `${name}${life}`, new Random(seed, `${name}${life}`), time)
    living.set(name, user)
    await user.begin()
    await user.act(time)
    // The last sessions stay for the end, when nobody kills any more.
    if (time.aborted) return life + 1
    await assertWholeSession(user, await user.settle())
    await user.end()
  }
}

/** Every sandbox has an open session and every open session a sandbox, in the records and on the host. */
async function assertPairs(server: AtollServer, host: Host): Promise<void> {
  const sandboxes = (await server.json('GET', '/api/sandboxes')) as Listed[]
  const { data } = (await server.json('GET', '/v1/sessions?limit=100')) as {
    data: { sandboxId: string; status: string }[]
  }
  const owned = data.filter(({ status }) => status === 'running').map(({ sandboxId }) => sandboxId)
  assert.deepEqual(sandboxes.map(({ sandboxID }) => sandboxID).toSorted(), owned.toSorted())
  const running = sandboxes.filter(({ status }) => status === 'running').map(({ sandboxID }) => sandboxID)
  assert.deepEqual(await host.sandboxes(), running.toSorted())
}

/** A session of each kind of disk and memory: what stays for good (modules, sets of rules) is there afterwards. */
async function warmUp(user: User): Promise<void> {
  const { server } = user
  await user.begin()
  const { sandboxId } = await user.settle()
  await server.json('POST', `/v1/sessions/${user.sessionId}/fork`, { user_id: user.id })
  await server.json('POST', `/api/sandboxes/${sandboxId}/hibernate`)
  await assertWholeSession(user, await user.settle())
  await user.end()
}

test(`${seconds} seconds of kill -9 lose no event, no message and no sandbox (ATOLL_SOAK_SEED=${seed})`, async (context) => {
  await using server = await AtollServer.start({ env: { ATOLL_REQUESTS_PER_SECOND: '1000' } })
  const host = await Host.of(server)
  const first = new User(server, 'first', new Random(seed, 'first'), AbortSignal.abort())
  const living = new Map([['first', first]])

  const time = new AbortController()
  const killer = new Killer(server, host, new Random(seed, 'killer'))
  const names = Array.from({ length: usersAtOnce }, (_name, index) => `u${index}s`)
  let lives: Promise<number>[] = []
  try {
    await warmUp(first)
    living.clear()
    const before = await host.tracesAtRest()

    setTimeout(() => time.abort(), seconds * 1000).unref()
    lives = names.map((name) => live(server, name, time.signal, living))
    // The first fault ends it: what came before it is of use, what follows is not.
    const [, ...counts] = await Promise.all([killer.run(time.signal), ...lives])
    const count = counts.reduce((sum, lived) => sum + lived, 0)
    context.diagnostic(`${count} sessions; killed ${JSON.stringify(killer.counts)}`)
    for (const user of living.values()) await assertWholeSession(user, await user.settle())
    await assertPairs(server, host)
    for (const user of living.values()) await user.end()
    assert.deepEqual(await settled(() => host.traces(), before), before)
  } catch (error) {
    tell(context, server, killer)
    throw error
  } finally {
    time.abort()
    await Promise.allSettled(lives)
    for (const user of living.values()) await user.leave()
  }
})

const linesTold = 150

function tell(context: TestContext, server: AtollServer, killer: Killer): void {
  for (const line of killer.log) context.diagnostic(line)
  context.diagnostic(server.output.split('\n').slice(-linesTold).join('\n'))
}
