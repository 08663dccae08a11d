/** Several clients do anything with a few sandboxes, while the server and sandboxes are killed: whatever was acknowledged holds. */
import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Box } from './soak/sandbox.ts'
import { makeChaos } from './soak/chaos.ts'
import { Client } from './soak/client.ts'
import * as moves from './soak/lifecycle.ts'
import * as saves from './soak/checkpoints.ts'
import * as terminals from './soak/terminals.ts'
import * as uses from './soak/commands.ts'
import { watchStates } from './soak/state-watch.ts'
import { World } from './soak/world.ts'
import { AtollServer } from './server.ts'
import { settled } from './settled.ts'
import { Host } from './host.ts'
import { Random } from './soak/random.ts'

/** Forty seconds, or as many as asked. */
const seconds = Number(process.env['ATOLL_RANDOM_SECONDS'] || 40)
/** Given again, each client makes the same choices again; which of two comes first is up to the machine. */
const seed = Number(process.env['ATOLL_RANDOM_SEED'] || randomInt(2 ** 31))
const clientsAtOnce = 6
const boxesMax = 8
const boxesMin = 3
const portOfFirst = 9000

const weights = {
  create: 3,
  fork: 4,
  delete: 2,
  hibernate: 4,
  wake: 3,
  reboot: 1,
  'power-cycle': 1,
  scale: 2,
  timeout: 2,
  checkpoint: 4,
  restore: 3,
  patch: 2,
  'delete checkpoint': 1,
  preview: 2,
  exec: 3,
  pty: 2,
  who: 4,
  write: 12,
  read: 12,
  program: 14,
}

async function act(client: Client, place: number): Promise<void> {
  const { world, random } = client
  let what = random.weighed(weights)
  if (world.boxes.length < boxesMin && what === 'delete') what = 'create'
  if (world.boxes.length >= boxesMax && (what === 'create' || what === 'fork')) what = 'delete'
  const box = client.box()
  world.count(what)
  if (what === 'create' || box === undefined) return await moves.create(client)
  if (what === 'fork') return await saves.fork(client, Math.min(3, boxesMax - world.boxes.length))
  if (what === 'patch') return await saves.makePatch(client)
  // What is in `error` stays so.
  if (box.wasKilled && !box.kills.isOpen && random.next() < 0.3) return await moves.remove(client, box)
  await actOn(client, box, what, portOfFirst + place)
}

type OnBox = Exclude<keyof typeof weights, 'create' | 'fork' | 'patch'>

async function actOn(client: Client, box: Box, what: OnBox, port: number): Promise<void> {
  const saving = client.saving()
  switch (what) {
    case 'delete':
      return await moves.remove(client, box)
    case 'hibernate':
      return await moves.hibernate(client, box)
    case 'wake':
      return await moves.wake(client, box)
    case 'reboot':
    case 'power-cycle':
      return await moves.restart(client, box, what)
    case 'scale':
      return await moves.scale(client, box)
    case 'timeout':
      return await moves.setIdleTimeout(client, box)
    case 'checkpoint':
      return await saves.checkpoint(client, box)
    case 'restore':
      return await saves.restore(client, box)
    case 'delete checkpoint':
      return saving === undefined ? undefined : await saves.removeSaving(client, saving)
    case 'preview':
      return await moves.declarePreview(client, box, port)
    case 'exec':
      return await terminals.useExec(client, box)
    case 'pty':
      return await terminals.usePty(client, box)
    case 'who':
      return await uses.askWho(client, box)
    case 'write':
      return await uses.writeFile(client, box)
    case 'read':
      return await uses.readFile(client, box)
    case 'program':
      return await uses.askProgram(client, box)
  }
}

async function live(client: Client, place: number): Promise<void> {
  while (!client.world.over.aborted) {
    // Now and then somebody calls a server that is away.
    if (client.world.down.isOpen && client.random.next() < 0.9) await sleep(50)
    else await act(client, place)
    await client.rest()
  }
}

/** When all is quiet, every sandbox that is left has all of its files, its program and its own name. */
async function demandWhole(client: Client): Promise<void> {
  for (const box of client.world.boxes.filter(({ isUsable }) => isUsable)) {
    await uses.askWho(client, box)
    await uses.askProgram(client, box)
    for (const name of box.files.names) await uses.readFile(client, box, name)
  }
}

interface Listed {
  sandboxID: string
}

/** Also what nobody knows of, because the answer was lost. */
async function deleteAll({ server, ids }: World): Promise<void> {
  for (const { sandboxID } of (await server.json('GET', '/api/sandboxes')) as Listed[]) ids.add(sandboxID)
  for (const id of ids) {
    await server.json('DELETE', `/api/sandboxes/${id}`)
    const path = `/api/sandboxes/${id}/checkpoints`
    const checkpoints = (await server.json('GET', path)) as { id: string }[]
    for (const checkpoint of checkpoints) await server.json('DELETE', `${path}/${checkpoint.id}`)
  }
}

/** What stays for good after a first use is there afterwards: sets of rules, folders of the pool. */
async function warmUp(world: World): Promise<void> {
  const { server } = world
  const { sandboxID } = (await server.json('POST', '/api/sandboxes', {})) as Listed
  const { id } = (await server.json('POST', `/api/sandboxes/${sandboxID}/checkpoints`, { name: 'first' })) as {
    id: string
  }
  await server.json('POST', `/api/sandboxes/${sandboxID}/checkpoints/${id}/restore`)
  await server.json('POST', `/api/sandboxes/${sandboxID}/hibernate`)
  await server.json('POST', `/api/sandboxes/${sandboxID}/wake`)
  world.ids.add(sandboxID)
  await deleteAll(world)
}

function tell(context: TestContext, world: World): void {
  const counts = [...world.counts].toSorted(([one], [other]) => one.localeCompare(other))
  context.diagnostic(counts.map(([what, count]) => `${what}: ${count}`).join(', '))
  context.diagnostic(`slowest start of the server: ${world.slowestStartMs} ms`)
}

test(`${seconds} seconds of random operations keep what was acknowledged (ATOLL_RANDOM_SEED=${seed})`, async (context) => {
  await using server = await AtollServer.start({ env: { ATOLL_REQUESTS_PER_SECOND: '10000' } })
  const host = await Host.of(server)
  const world = new World(server)
  await warmUp(world)
  const before = await host.tracesAtRest()

  const clients = Array.from({ length: clientsAtOnce }, (_, place) => {
    return new Client(world, `c${place}`, new Random(seed, `client ${place}`))
  })
  const timer = setTimeout(() => world.end(), seconds * 1000)
  const chaos = makeChaos(new Client(world, 'chaos', new Random(seed, 'chaos')), host)
  await Promise.all([chaos, watchStates(world), ...clients.map((client, place) => live(client, place))])
  clearTimeout(timer)
  tell(context, world)
  assert.deepEqual(world.violations, [])

  await demandWhole(new Client(world, 'last', new Random(seed, 'last')))
  assert.deepEqual(world.violations, [])

  await deleteAll(world)
  assert.deepEqual(await settled(() => host.traces(), before), before)
})
