/**
 * Clients of sandboxes and users of sessions act at random on one server, while it, agents and sandboxes are killed. Whatever was
 * acknowledged holds, and the host is as before in the end.
 */
import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { test, type TestContext } from 'node:test'
import { Host, settled } from './host.ts'
import { AtollServer } from './server.ts'
import { checkSandboxes, runClient } from './soak/actions.ts'
import { runChaos } from './soak/chaos.ts'
import { Client, World } from './soak/client.ts'
import { Random } from './soak/random.ts'
import { assertWholeSession } from './soak/session-integrity.ts'
import { User } from './soak/session-user.ts'
import { watchStates } from './soak/state-watch.ts'

/** `npm run test:soak` asks for longer and for more clients. */
const seconds = Number(process.env['ATOLL_SOAK_SECONDS'] || 12)
/** Given again, each client makes the same choices again; which of two comes first is up to the machine. */
const seed = Number(process.env['ATOLL_SOAK_SEED'] || randomInt(2 ** 31))
const clientsCount = Number(process.env['ATOLL_SOAK_CLIENTS'] || 3)
const usersCount = Number(process.env['ATOLL_SOAK_USERS'] || 2)
const portOfFirst = 9000
const linesTold = 150

interface Listed {
  sandboxID: string
  status: string
}

/** One user, session after session: acts, rests, compares the session with what the service says, and deletes it. */
async function runUser({ server, over }: World, name: string, users: Map<string, User>): Promise<void> {
  for (let life = 0; ; life += 1) {
    const user = new User(server, `${name}${life}`, new Random(seed, `${name}${life}`), over)
    users.set(name, user)
    await user.begin()
    await user.act(over)
    // The last session of each is checked without chaos.
    if (over.aborted) return
    await assertWholeSession(user, await user.settle())
    await user.end()
  }
}

async function sessionSandboxes(server: AtollServer): Promise<string[]> {
  const { data } = (await server.json('GET', '/v1/sessions?limit=100')) as {
    data: { sandboxId: string; status: string }[]
  }
  return data.flatMap(({ status, sandboxId }) => (status === 'running' ? [sandboxId] : [])).toSorted()
}

async function listSandboxes(server: AtollServer): Promise<Listed[]> {
  return (await server.json('GET', '/api/sandboxes')) as Listed[]
}

/** Deletes the sandboxes of the clients, with those of which the answer was lost, and their checkpoints. */
async function deleteSandboxes({ server, ids }: World): Promise<void> {
  const kept = new Set(await sessionSandboxes(server))
  for (const { sandboxID } of await listSandboxes(server)) if (!kept.has(sandboxID)) ids.add(sandboxID)
  for (const id of ids) {
    await server.json('DELETE', `/api/sandboxes/${id}`)
    const path = `/api/sandboxes/${id}/checkpoints`
    const checkpoints = (await server.json('GET', path)) as { id: string }[]
    for (const checkpoint of checkpoints) await server.json('DELETE', `${path}/${checkpoint.id}`)
  }
}

/** Every sandbox has an open session and every open session a sandbox, in the records and on the host. */
async function assertPairs(server: AtollServer, host: Host): Promise<void> {
  const sandboxes = await listSandboxes(server)
  const ids = (listed: Listed[]) => listed.map(({ sandboxID }) => sandboxID).toSorted()
  assert.deepEqual(ids(sandboxes), await sessionSandboxes(server))
  assert.deepEqual(await host.sandboxes(), ids(sandboxes.filter(({ status }) => status === 'running')))
}

/** What stays for good after a first use is there afterwards: kernel modules, sets of rules, folders of the pool. */
async function warmUp(world: World): Promise<void> {
  const { server } = world
  const user = new User(server, 'first', new Random(seed, 'first'), AbortSignal.abort())
  await user.begin()
  const { sandboxId } = await user.settle()
  await server.json('POST', `/v1/sessions/${user.sessionId}/fork`, { user_id: user.id })
  const path = `/api/sandboxes/${sandboxId}`
  const { id } = (await server.json('POST', `${path}/checkpoints`, { name: 'first' })) as { id: string }
  const forks = await server.json('POST', `/api/sandboxes/from-checkpoint/${id}`, { count: 1 })
  const [fork] = (forks as { sandboxes: Listed[] }).sandboxes
  await server.json('POST', `/api/sandboxes/${fork?.sandboxID}/checkpoints`, { name: 'second' }).then(async (made) => {
    const { id: second } = made as { id: string }
    await server.json('POST', `/api/sandboxes/${fork?.sandboxID}/checkpoints/${second}/restore`)
  })
  await server.json('POST', `${path}/hibernate`)
  await assertWholeSession(user, await user.settle())
  await user.end()
  await deleteSandboxes(world)
}

test(`soak: ${seconds} seconds of random operations and kills lose nothing that was acknowledged (ATOLL_SOAK_SEED=${seed})`, async (context) => {
  await using server = await AtollServer.start({ env: { ATOLL_REQUESTS_PER_SECOND: '10000' } })
  const host = await Host.of(server)
  const world = new World(server)
  const clientNamed = (name: string) => new Client(world, name, new Random(seed, name))
  await warmUp(world)
  const before = await host.tracesAtRest()

  const users = new Map<string, User>()
  const timer = setTimeout(() => world.end(), seconds * 1000)
  const running = [
    runChaos(clientNamed('chaos'), host),
    watchStates(world),
    ...Array.from({ length: clientsCount }, (_, index) => runClient(clientNamed(`c${index}`), portOfFirst + index)),
    ...Array.from({ length: usersCount }, (_, index) => runUser(world, `u${index}s`, users)),
  ]
  try {
    await Promise.all(running)
    tellCounts(context, world)
    assert.deepEqual(world.violations, [])
    await checkSandboxes(clientNamed('last'))
    assert.deepEqual(world.violations, [])
    for (const user of users.values()) await assertWholeSession(user, await user.settle())
    await deleteSandboxes(world)
    await assertPairs(server, host)
    for (const user of users.values()) await user.end()
    assert.deepEqual(await settled(() => host.traces(), before), before)
  } catch (error) {
    for (const line of world.log) context.diagnostic(line)
    context.diagnostic(server.output.split('\n').slice(-linesTold).join('\n'))
    throw error
  } finally {
    // The first fault ends all: what follows it is of no use.
    clearTimeout(timer)
    world.end()
    await Promise.allSettled(running)
    for (const user of users.values()) await user.leave()
  }
})

function tellCounts(context: TestContext, world: World): void {
  const counts = [...world.counts].toSorted(([one], [other]) => one.localeCompare(other))
  context.diagnostic(counts.map(([what, count]) => `${what}: ${count}`).join(', '))
  context.diagnostic(`slowest start of the server: ${world.slowestStartMs} ms`)
}
