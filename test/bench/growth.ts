import { execFile } from 'node:child_process'
import { Agent } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { forkOf, startSandbox, takeCheckpoint } from '../e2e/sandbox-calls.ts'
import { AtollServer } from '../e2e/server.ts'
import { createSession, getSession, sendMessage } from '../e2e/session-client.ts'
import { ask } from './http.ts'
import { type Comparison, summary, timed } from './measure.ts'

const run = promisify(execFile)

/** What an empty server has as well, so that a page of a list is equally long. */
const pageLength = 20
const filled = { sandboxes: 500, checkpoints: 1000, sessions: 10_000, streamEventsPerSession: 10 }
const rounds = 30
const startRounds = 6
/** Reads take less than a millisecond: one round is so many. */
const readsPerRound = 20
const createsAtOnce = 4
/** After which tables that have grown are analysed. */
const settleMs = 70_000
const pauseMs = 5000
const filledWith = [
  `${filled.sandboxes} sandboxes`,
  `${filled.checkpoints} checkpoints`,
  `${filled.sessions} sessions`,
  `${filled.sessions * filled.streamEventsPerSession} events`,
]

/** Milliseconds of the rounds, by what was done. */
type Times = Map<string, number[]>

interface Fixture {
  sandboxIds: string[]
  checkpointId: string
  sessionId: string
}

/**
 * The same calls on a server with nearly nothing, on one with many sandboxes, checkpoints, sessions and events, and on one with nearly
 * nothing again: one after the other, as what grows may lie outside of the server, such as the mount table. The first row shows
 * how far the machine itself has drifted. All is real but most sessions, which are written into the database as ended ones. Sandboxes
 * are started cold: warm ones would hide what a start costs.
 */
export async function growthBench(): Promise<Comparison[]> {
  console.error(`bench: growth fills a server with ${filledWith.join(', ')}`)
  const halves = { rounds: rounds / 2, startRounds: startRounds / 2 }
  const before = await measureServer(halves, async () => {})
  const full = await measureServer({ rounds, startRounds }, fill)
  const after = await measureServer(halves, async () => {})
  return [...full].map(([what, times]) => {
    const empty = [before, after].flatMap((half) => half.get(what) ?? [])
    return { what, against: 'an empty server', rounds: times.length, atoll: summary(times), other: summary(empty) }
  })
}

interface Rounds {
  rounds: number
  startRounds: number
}

async function measureServer(
  counts: Rounds,
  prepare: (server: AtollServer, fixture: Fixture) => Promise<void>,
): Promise<Times> {
  await using server = await AtollServer.start({
    // That of a test has too few addresses. No other server is in this network namespace.
    subnet: '10.200.0.0/16',
    env: {
      ATOLL_DISK_POOL_MB: '32768',
      ATOLL_LOG_LEVEL: 'warn',
      ATOLL_REQUESTS_PER_SECOND: '1000000',
      ATOLL_RUNNING_SANDBOXES_MAX: '1000',
    },
  })
  const sandboxIds = await startSandboxes(server, pageLength)
  const { id: sessionId } = await createSession(server, 'run: true')
  await idle(server, sessionId)
  const checkpointId = await takeCheckpoint(server, sandboxIds[0] ?? '', 'source', 'disk_only')
  await whileStopped(server, () => insertSessions(server, pageLength))
  const fixture = { sandboxIds, checkpointId, sessionId }
  await prepare(server, fixture)
  await sleep(settleMs)
  return await measure(server, fixture, counts)
}

async function fill(server: AtollServer, { sandboxIds }: Fixture): Promise<void> {
  await startSandboxes(server, filled.sandboxes - pageLength)
  for (let index = 0; index < filled.checkpoints / pageLength; index += 1) {
    for (const id of sandboxIds) await takeCheckpoint(server, id, `filled ${index}`, 'disk_only')
  }
  await whileStopped(server, () => insertSessions(server, filled.sessions))
}

async function measure(server: AtollServer, fixture: Fixture, counts: Rounds): Promise<Times> {
  const { sandboxIds, checkpointId, sessionId } = fixture
  const times: Times = new Map()
  const time = async <Result>(what: string, work: () => Promise<Result>): Promise<Result> => {
    let result: { value: Result } | undefined
    const ms = await timed(async () => (result = { value: await work() }))
    times.set(what, [...(times.get(what) ?? []), ms])
    return result!.value
  }
  const agent = new Agent({ keepAlive: true })
  const headers = { 'X-API-Key': server.key }
  const reads = async (path: string) => {
    for (let read = 0; read < readsPerRound; read += 1) {
      const status = await ask(agent, { port: server.port, path, headers })
      if (status !== 200) throw new Error(`GET ${path} answered ${status}`)
    }
  }
  const remove = (id: string) => server.json('DELETE', `/api/sandboxes/${id}`)
  // The first round warms up.
  for (let round = -1; round < counts.rounds; round += 1) {
    if (round === 0) times.clear()
    await time('start a program without Atoll, 10 times (control)', programs)
    const created = await time('create a sandbox, cold', () => startSandbox(server))
    await time('delete a sandbox', () => remove(created))
    await remove(await time('fork from a checkpoint of the disk', () => forkOf(server, checkpointId)))
    await time(`list ${pageLength} sandboxes, ${readsPerRound} times`, () =>
      reads(`/api/sandboxes?limit=${pageLength}`),
    )
    await time(`list ${pageLength} sessions, ${readsPerRound} times`, () => reads(`/v1/sessions?limit=${pageLength}`))
    await time(`read a sandbox, ${readsPerRound} times`, () => reads(`/api/sandboxes/${sandboxIds[0]}`))
    await time('send a message to a session', () => sendMessage(server, sessionId, 'run: true'))
    await idle(server, sessionId)
  }
  agent.destroy()
  for (let round = 0; round < counts.startRounds; round += 1) {
    await server.stop()
    await time('start the server', () => server.restart())
    await sleep(pauseMs)
  }
  return times
}

async function programs(): Promise<void> {
  for (let count = 0; count < 10; count += 1) await run('true')
}

async function startSandboxes(server: AtollServer, count: number): Promise<string[]> {
  const ids: string[] = []
  let begun = 0
  const loop = async () => {
    while (begun < count) {
      begun += 1
      ids.push(await startSandbox(server))
    }
  }
  await Promise.all(Array.from({ length: createsAtOnce }, loop))
  return ids
}

async function insertSessions({ dataDir, key }: AtollServer, sessions: number): Promise<void> {
  const counts = [sessions, filled.streamEventsPerSession].map(String)
  await run(process.execPath, [`${import.meta.dirname}/growth-fixture.ts`, dataDir, key, ...counts])
}

async function whileStopped(server: AtollServer, work: () => Promise<unknown>): Promise<void> {
  await server.stop()
  await work()
  await server.restart()
}

async function idle(server: AtollServer, sessionId: string): Promise<void> {
  while ((await getSession(server, sessionId)).activity !== 'idle') await sleep(20)
}
