import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { roundsOf } from '../../src/lib/testing/thorough.ts'
import { Crowd, type CrowdClient } from './crowd.ts'
import { Host } from './host.ts'
import { AtollServer } from './server.ts'
import { createSession, getSession } from './session-client.ts'

/** `npm run test:load` sets a thousand. `npm test` has slow readers of a session in `test/api/`. */
const clientsCount = Number(process.env['ATOLL_LOAD_CLIENTS'] || roundsOf(0, 80))
const comingAndGoingCount = Math.ceil(clientsCount * 0.06)
const staringCount = Math.ceil(clientsCount * 0.04)
const readersCount = clientsCount - comingAndGoingCount - staringCount
/** Their turns are 1 MB each, together more than the kernel holds for a client that takes nothing (`tcp_wmem`: 4 MiB). */
const longPrompts = 7
const longPromptBytes = 250_000

/** `npm run test:load` sets two hundred. */
const sessionsCount = Number(process.env['ATOLL_LOAD_SESSIONS'] || 3)
const workingCount = Math.min(20, sessionsCount)
/** Idle sandboxes hibernate after it, so that not all of the agents are in memory. */
const idleSeconds = 45

/** What the server's memory may grow by, in MiB, over what it is with one session and nobody who listens. */
const growthMbMax = 512

if (clientsCount > 0) {
  test(`load: ${clientsCount} clients of one session get each event once while some reconnect or stall and the server is killed`, async (t) => {
    await using server = await loadedServer()
    const { id } = await createSession(server, 'run: echo ready')
    const say = (message: string) => server.json('POST', `/v1/sessions/${id}/messages`, { message, user_id: 'ada' })
    using crowd = new Crowd(server, id)
    const first = crowd.add(1)
    const ends = first.map((client) => client.follow())
    await crowd.turns(first, 1)
    await using usage = await Usage.start(server)

    const readers = [...first, ...crowd.add(readersCount - 1)]
    const comingAndGoing = crowd.add(comingAndGoingCount)
    const reading = [...readers, ...comingAndGoing]
    const staring = crowd.add(staringCount)
    const openedMs = performance.now()
    ends.push(...reading.slice(1).map((client) => client.follow()))
    await Promise.all(staring.map((client) => client.stare()))
    await crowd.turns(reading, 1)
    t.diagnostic(
      `${clientsCount} clients were open with what had been after ${Math.round(performance.now() - openedMs)} ms`,
    )
    crowd.dropAtRandom(comingAndGoing)

    const firstLive = (readers[0]?.last ?? 0) + 1
    let turns = 1
    for (let count = 0; count < longPrompts; count += 1) {
      await say(`run: : ${'x'.repeat(longPromptBytes)}`)
      await crowd.turns(readers, (turns += 1))
    }
    await say('A page about tides')
    await crowd.turns(readers, (turns += 1))
    await say('Add a section about the moon')
    await crowd.turns(readers, (turns += 1))
    // Those who take nothing are dropped, and nobody had to wait for that.
    while ((await openStreams(server)) > reading.length) await sleep(200)
    assert.ok(staring.every((client) => client.last === 0))
    const beforeKill = await usage.stop()
    const lastLive = readers[0]?.last ?? 0

    await say('run: sleep 1; echo slept')
    await crowd.turns(readers, turns)
    await server.kill()
    await server.restart()
    const backMs = performance.now()
    await using usageAfterwards = await Usage.start(server, usage.beforeMb)
    await crowd.turns(readers, (turns += 1))
    t.diagnostic(
      `after a restart all were back at the end of the turn after ${Math.round(performance.now() - backMs)} ms`,
    )
    await say('run: echo the end')
    await crowd.turns(readers, (turns += 1))
    const created = await exportedTimes(server, id)
    await server.json('DELETE', `/v1/sessions/${id}`)
    await Promise.all(ends)

    const last = created.length
    assert.ok(reading.every((client) => client.hasEnded && client.last === last && client.turns === turns))
    assert.ok(comingAndGoing.every((client) => client.connections > 2))
    for (const client of staring) {
      const error = await client.takeRest()
      assert.ok(error instanceof Error && !client.hasEnded, 'the connection was cut off')
      assert.ok(client.last < last)
      await client.follow()
      assert.ok(client.hasEnded && client.last === last && client.turns === turns)
    }
    for (const seen of crowd.seen.values())
      assert.equal(seen.times.length, readersCount + comingAndGoingCount + staringCount)
    const afterwards = await usageAfterwards.stop()
    for (const { growthMb } of [beforeKill, afterwards]) assert.ok(growthMb < growthMbMax, `grew by ${growthMb} MiB`)
    tellLags(t, crowd, created, firstLive, lastLive)
    t.diagnostic(`server: ${JSON.stringify({ beforeKill, afterwards })}`)
  })
}

test(`load: ${sessionsCount} sessions are open, ${workingCount} work at a time, and no stream has a gap`, async (t) => {
  const server = await loadedServer()
  const host = await Host.of(server)
  let isOver = false
  after(async () => {
    if (!isOver) await server[Symbol.asyncDispose]()
  })
  await using usage = await Usage.start(server)
  const numbers = Array.from({ length: sessionsCount }, (_, index) => index)
  const crowds: { crowd: Crowd; client: CrowdClient; end: Promise<void>; sandboxId: string }[] = []

  const openedMs = performance.now()
  await inLanes(numbers, async (number) => {
    const { id, sandboxId } = await createSession(server, `run: echo session ${number}`)
    const crowd = new Crowd(server, id)
    const [client] = crowd.add(1)
    assert.ok(client)
    crowds.push({ crowd, client, end: client.follow(), sandboxId })
    await crowd.turns([client], 1)
    await server.json('POST', `/api/sandboxes/${sandboxId}/timeout`, { timeout: idleSeconds })
  })
  t.diagnostic(`${sessionsCount} sessions had their first turn after ${Math.round(performance.now() - openedMs)} ms`)

  const turnMs: number[] = []
  const workedMs = performance.now()
  await inLanes(crowds, async ({ crowd, client }) => {
    const saidMs = performance.now()
    await server.json('POST', `/v1/sessions/${crowd.sessionId}/messages`, {
      message: 'run: echo again',
      user_id: 'ada',
    })
    await crowd.turns([client], 2)
    turnMs.push(Math.round(performance.now() - saidMs))
  })
  const turnsMs = turnMs.toSorted((a, b) => a - b)
  t.diagnostic(
    `each had a second turn after ${Math.round(performance.now() - workedMs)} ms; ` +
      `one took ${turnsMs[Math.floor(turnsMs.length / 2)]} ms (median), ${turnsMs.at(-1)} ms (longest)`,
  )

  const woken = await Promise.all(
    crowds.map(async ({ crowd, client }) => {
      const session = await getSession(server, crowd.sessionId)
      assert.deepEqual([session.status, session.activity], ['running', 'idle'])
      const users = session.messages.filter(({ role }) => role === 'user')
      assert.deepEqual(
        users.map(({ state }) => state),
        ['consumed', 'consumed'],
      )
      assert.equal((await exportedTimes(server, crowd.sessionId)).length, client.last)
      return session.events.some(({ type }) => type === 'sandbox_resumed')
    }),
  )
  t.diagnostic(`${woken.filter(Boolean).length} of them had hibernated and were woken by their message`)
  assert.equal(await openStreams(server), sessionsCount)
  const { growthMb, cpuSeconds } = await usage.stop()
  assert.ok(growthMb < growthMbMax, `grew by ${growthMb} MiB`)
  t.diagnostic(`the server grew by ${growthMb} MiB at most and took ${cpuSeconds} s of CPU`)

  const deletedMs = performance.now()
  await inLanes(crowds, async ({ crowd, client, end }) => {
    const { last } = client
    await server.json('DELETE', `/v1/sessions/${crowd.sessionId}`)
    await end
    assert.ok(client.hasEnded && client.last === last && client.turns === 2)
    crowd[Symbol.dispose]()
  })
  t.diagnostic(`all were deleted after ${Math.round(performance.now() - deletedMs)} ms`)
  const left = (await server.json('GET', '/api/sandboxes')) as { sandboxID: string; status: string }[]
  assert.deepEqual(
    left.filter(({ status }) => status !== 'stopped'),
    [],
  )
  assert.ok((await host.leftovers()).length > 0)
  isOver = true
  await server[Symbol.asyncDispose]()
  assert.deepEqual(await host.leftovers(), [])
})

async function loadedServer(): Promise<AtollServer> {
  return await AtollServer.start({
    // One key for all clients, who all may watch one session and take theirs out, a pool for hibernated memory, no more log than trouble, and no
    // minute to wait for who stares.
    env: {
      ATOLL_REQUESTS_PER_SECOND: '1000',
      ATOLL_DISK_POOL_MB: '40960',
      ATOLL_LOG_LEVEL: 'warn',
      ATOLL_LIMITS: JSON.stringify({
        http: { streamStallMs: 5_000, eventStreamsPerSessionMax: 2000, exportsPerOrganisationMax: 1000 },
      }),
    },
  })
}

/** Takes items one after the other in as many lanes as sessions work at a time. */
async function inLanes<Item>(items: Iterable<Item>, work: (item: Item) => Promise<void>): Promise<void> {
  const rest = [...items].values()
  const lane = async () => {
    for (const item of rest) await work(item)
  }
  await Promise.all(Array.from({ length: workingCount }, lane))
}

async function openStreams(server: AtollServer): Promise<number> {
  const text = await (await server.fetch('/metrics')).text()
  return Number(/^atoll_open_streams\{kind="events"\} (\d+)$/m.exec(text)?.[1])
}

/** When each event of the stream was written, by its number from 1 on; fails unless the numbers have no hole. */
async function exportedTimes(server: AtollServer, sessionId: string): Promise<number[]> {
  const text = await (await server.fetch(`/v1/sessions/${sessionId}/export`)).text()
  const lines = text.trimEnd().split('\n')
  const events = lines
    .map((line) => JSON.parse(line) as { type: string; stream?: { sequence: number; createdAt: string } })
    .flatMap(({ stream }) => stream ?? [])
  assert.deepEqual(
    events.map(({ sequence }) => sequence),
    events.map((_, index) => index + 1),
  )
  return events.map(({ createdAt }) => Date.parse(createdAt))
}

/** From the commit of an event to the clients that read all the time, for events from `first` to `last`. */
function tellLags(t: TestContext, crowd: Crowd, created: readonly number[], first: number, last: number): void {
  const lags = { short: [] as number[], long: [] as number[] }
  for (const [sequence, { byteLength, times }] of crowd.seen) {
    if (sequence < first || sequence > last) continue
    const size = byteLength < longPromptBytes ? 'short' : 'long'
    for (const time of times.slice(0, readersCount)) lags[size].push(time - (created[sequence - 1] ?? 0))
  }
  for (const [size, unsorted] of Object.entries(lags)) {
    const sorted = unsorted.toSorted((a, b) => a - b)
    const at = (share: number) => sorted[Math.floor((sorted.length - 1) * share)]
    t.diagnostic(
      `${size} events: ${at(0.5)} ms from commit to client (median), ${at(0.99)} (99 of 100), ${at(1)} (longest)`,
    )
  }
}

interface Used {
  growthMb: number
  cpuSeconds: number
}

/** Watches the memory of the server's process from now on. */
class Usage {
  readonly beforeMb: number
  readonly #server: AtollServer
  readonly #timer: NodeJS.Timeout
  #mostMb: number

  private constructor(server: AtollServer, beforeMb: number) {
    this.#server = server
    this.beforeMb = beforeMb
    this.#mostMb = beforeMb
    this.#timer = setInterval(() => void this.#look(), 100)
  }

  static async start(server: AtollServer, beforeMb?: number): Promise<Usage> {
    return new Usage(server, beforeMb ?? (await residentMb(server)))
  }

  async stop(): Promise<Used> {
    await this.#look()
    clearInterval(this.#timer)
    const stat = await readFile(`/proc/${this.#server.pid}/stat`, 'utf8')
    // Fields 14 and 15 of proc(5): ticks of user and system time; the name before them may hold anything but `)`.
    const [user, system] = stat
      .slice(stat.lastIndexOf(')') + 2)
      .split(' ')
      .slice(11, 13)
      .map(Number)
    const cpuSeconds = ((user ?? 0) + (system ?? 0)) / 100
    return { growthMb: Math.round(this.#mostMb - this.beforeMb), cpuSeconds }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer)
  }

  async #look(): Promise<void> {
    this.#mostMb = Math.max(this.#mostMb, await residentMb(this.#server))
  }
}

async function residentMb(server: AtollServer): Promise<number> {
  const status = await readFile(`/proc/${server.pid}/status`, 'utf8')
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024
}
