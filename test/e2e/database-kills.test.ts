/** Server and private PostgreSQL are killed under load, alone and together: what was acknowledged is there afterwards, whole and once. */
import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { roundsOf } from '../../src/lib/testing/thorough.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

/** `ATOLL_TEST_THOROUGH` repeats each kind of kill. */
const rounds = roundsOf(1, 10)
const writers = 6
/** Acknowledged since the last kill, before the next: there is something to lose. */
const acknowledgedMin = 10

const kinds = [
  'a session of PostgreSQL',
  'PostgreSQL',
  'all of PostgreSQL',
  'server',
  'server, then PostgreSQL',
  'both',
]

/** Writes with keys that it repeats until they are acknowledged, so that one is never there twice. */
class Load implements AsyncDisposable {
  readonly acknowledged = new Map<string, string>()
  readonly #server: AtollServer
  readonly #path: string
  readonly #over = new AbortController()
  readonly #givenUp = new AbortController()
  readonly #running: Promise<void>[]

  constructor(server: AtollServer, path: string) {
    this.#server = server
    this.#path = path
    this.#running = Array.from({ length: writers }, (_, index) => this.#write(index))
  }

  /** Returns when all that was begun is acknowledged. */
  async end(): Promise<void> {
    this.#over.abort()
    await Promise.all(this.#running)
  }

  /** What has no answer yet is given up. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#givenUp.abort()
    await this.end()
  }

  async #write(writer: number): Promise<void> {
    for (let count = 0; !this.#over.signal.aborted; count++) {
      const description = `${writer}.${count}`
      for (let id: string | undefined; id === undefined && !this.#givenUp.signal.aborted;) {
        id = await this.#attempt(description)
        if (id === undefined) await sleep(20)
        else this.acknowledged.set(description, id)
      }
    }
  }

  /** Undefined when it may or may not have taken effect. */
  async #attempt(description: string): Promise<string | undefined> {
    const request = {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Idempotency-Key': `key-${description}` },
      body: JSON.stringify({ script: `# ${description}`, description, strategy: 'on_resume' }),
    }
    const answer = await this.#server.fetch(this.#path, request).catch(() => undefined)
    if (answer === undefined) return undefined
    const text = await answer.text().catch(() => undefined)
    if (text === undefined) return undefined
    if (answer.ok) return (JSON.parse(text) as { patch: { id: string } }).patch.id
    // 409: an earlier attempt still runs.
    assert.ok(answer.status === 503 || answer.status === 409, `${answer.status} ${text}`)
    return undefined
  }
}

async function postmaster(server: AtollServer): Promise<number> {
  return Number.parseInt(await readFile(join(server.dataDir, 'db/postmaster.pid'), 'utf8'), 10)
}

function killNow(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

async function kill(server: AtollServer, kind: string): Promise<void> {
  const first = await postmaster(server)
  const cgroups = await Cgroups.find()
  const all = await cgroups.members(new HostNames(server.dataDir).databaseGroup)
  assert.ok(all.includes(first), 'all of PostgreSQL is in its group')
  const sessions = all.filter((pid) => pid !== first)
  await sleep(randomInt(50))
  if (kind === 'a session of PostgreSQL') killNow(sessions[randomInt(sessions.length)] ?? 0)
  if (kind === 'PostgreSQL') killNow(first)
  if (kind === 'all of PostgreSQL') for (const pid of all) killNow(pid)
  if (kind === 'server' || kind === 'server, then PostgreSQL') await server.kill()
  if (kind === 'server, then PostgreSQL') killNow(first)
  if (kind === 'both') {
    process.kill(server.pid, 'SIGKILL')
    for (const pid of all) killNow(pid)
    await server.ended()
  }
  if (kind === 'both' || kind.startsWith('server')) await server.restart()
}

test('database: kills of server, of PostgreSQL and of both under load lose nothing that was acknowledged, and double nothing', async (t) => {
  await using server = await AtollServer.start({ env: { ATOLL_REQUESTS_PER_SECOND: '100000' } })
  const sandbox = await startSandbox(server)
  const checkpoint = await takeCheckpoint(server, sandbox, 'a', 'disk_only')
  const path = `/api/sandboxes/checkpoints/${checkpoint}/patches`
  await using load = new Load(server, path)
  const untilMore = async () => {
    const wanted = load.acknowledged.size + acknowledgedMin
    while (load.acknowledged.size < wanted) await sleep(5)
  }
  await untilMore()
  for (let round = 0; round < rounds; round++) {
    for (const kind of kinds) {
      const before = load.acknowledged.size
      await kill(server, kind)
      await untilMore()
      t.diagnostic(`${kind}: ${load.acknowledged.size - before} acknowledged until the next`)
    }
  }
  await load.end()
  const listed = (await server.json('GET', path)) as { id: string; description: string; sequence: number }[]
  const found = new Map(listed.map(({ id, description }) => [description, id]))
  assert.deepEqual(found, load.acknowledged)
  assert.equal(listed.length, load.acknowledged.size)
  // Numbers are dense: nothing of a lost write is left.
  assert.deepEqual(
    listed.map(({ sequence }) => sequence),
    listed.map((_, index) => index + 1),
  )
  const { status } = (await server.json('GET', `/api/sandboxes/${sandbox}`)) as { status: string }
  assert.equal(status, 'running')
})
