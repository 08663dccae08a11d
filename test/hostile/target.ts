/** The server as shipped, with two tenants: one attacks, the other is its neighbour. */
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { after } from 'node:test'
import { HostNames } from '../../src/runtime/host-names.ts'
import { ApiClient, type ApiAnswer } from '../support/api-client.ts'
import { valuesOf } from '../support/database.ts'
import { AtollServer } from '../e2e/server.ts'

export interface Target {
  server: AtollServer
  /** Its sandbox runs as long as the suite. */
  attacker: ApiClient
  sandboxId: string
  /** A tenant whose things the attacker knows by name. */
  neighbour: ApiClient
  neighbourId: string
  /** Sends bytes on a connection of its own and returns what comes until the server ends it, for `waitMs`, or until it is enough. */
  raw: (text: string, waitMs?: number, isEnough?: (said: string) => boolean) => Promise<string>
}

/** One thing that an attacker does, and what comes of it: it throws where that is not what it should be. */
export interface Try {
  name: string
  /** It takes long, or all of the machine: not in `npm test`. */
  slow?: boolean
  run: (target: Target) => Promise<void>
}

export async function openTarget(): Promise<Target> {
  const server = await AtollServer.start()
  const attacker = new ApiClient(server.url, server.key)
  const neighbour = new ApiClient(server.url, await anotherKey(server))
  after(async () => {
    // The server that is disposed of knows one key.
    const { body } = await neighbour.get('/api/sandboxes')
    for (const { sandboxID } of body as { sandboxID: string }[]) await neighbour.delete(`/api/sandboxes/${sandboxID}`)
    await server[Symbol.asyncDispose]()
  })
  const [sandboxId, neighbourId] = await Promise.all([attacker, neighbour].map(startIn))
  assert.ok(sandboxId !== undefined && neighbourId !== undefined)
  const { port } = server
  return { server, attacker, sandboxId, neighbour, neighbourId, raw: (...args) => sendRaw(port, ...args) }
}

/** Keys are made by operators; the API has no call for another organisation. */
async function anotherKey({ dataDir }: AtollServer): Promise<string> {
  const key = `test_${randomBytes(16).toString('hex')}`
  const socketDir = encodeURIComponent(new HostNames(dataDir).databaseDir)
  const url = `postgres:///atoll?host=${socketDir}&port=5432&user=atoll`
  await valuesOf(url, `insert into organisations (id, name) values ('org_neighbour', 'neighbour')`)
  const hash = createHash('sha256').update(key).digest('hex')
  const statement = `insert into api_keys (id, org_id, key_hash, created_at) values ('key_neighbour', 'org_neighbour', $1, now())`
  await valuesOf(url, statement, [hash])
  return key
}

async function startIn(api: ApiClient): Promise<string> {
  // Of its own disk: the pool of the tests is small.
  const { body } = await api.post('/api/sandboxes', { timeout: 0, diskMB: 2048 })
  return (body as { sandboxID: string }).sandboxID
}

function sendRaw(port: number, ...[text, waitMs = 3_000, isEnough]: Parameters<Target['raw']>): Promise<string> {
  return new Promise((resolve) => {
    const socket: Socket = connect(port, '127.0.0.1')
    let said = ''
    const end = () => {
      clearTimeout(timer)
      socket.destroy()
      resolve(said)
    }
    const timer = setTimeout(end, waitMs)
    socket.on('data', (chunk: Buffer) => {
      said += chunk.toString('latin1')
      if (isEnough?.(said) === true) end()
    })
    socket.on('close', end)
    socket.on('error', end)
    socket.write(Buffer.from(text, 'latin1'))
  })
}

/** Runs a line of shell in the attacker's sandbox as its root. */
export async function inside(
  { attacker, sandboxId }: Pick<Target, 'attacker' | 'sandboxId'>,
  script: string,
  timeout = 120,
): Promise<{ exitCode: number; stdout: string; stderr: string }> {
  const body = { cmd: 'bash', args: ['-c', script], timeout }
  const answer = await attacker.post(`/api/sandboxes/${sandboxId}/exec/run`, body)
  assert.equal(answer.status, 200, answer.text)
  return answer.body as { exitCode: number; stdout: string; stderr: string }
}

/** An error of the API with one of these statuses, whose words match. */
export function refused(answer: ApiAnswer, statuses: number | readonly number[], words?: RegExp): void {
  const wanted = [statuses].flat()
  const answered = `${answer.status} ${answer.text.slice(0, 300)}`
  assert.ok(wanted.includes(answer.status), `${wanted.join(' or ')} was expected: ${answered}`)
  const { error: said, code: told } = answer.body as { error?: unknown; code?: unknown }
  // Calls of sessions have another form.
  const { message: error = said, code = told } = (typeof said === 'object' ? said : {}) as {
    message?: unknown
    code?: unknown
  }
  assert.ok(typeof error === 'string' && typeof code === 'string', `no typed error: ${answered}`)
  assert.doesNotMatch(error, /\/var\/|\/run\/atoll|node_modules|\.ts:\d/, 'it tells of the host')
  if (words !== undefined) assert.match(error, words)
}

/** Resident bytes of the server, and of its host helper with those of its commands that are processes. */
export function residentBytes({ pid }: AtollServer): { server: number; helper: number } {
  const isHelper = (child: number) => readIfThere(`/proc/${child}/comm`).startsWith('atoll-hostd')
  const helper = descendants(pid)
    .filter(isHelper)
    .reduce((sum, child) => sum + bytesOf(child), 0)
  return { server: bytesOf(pid), helper }
}

function descendants(pid: number): number[] {
  const children = readIfThere(`/proc/${pid}/task/${pid}/children`).split(' ').filter(Boolean).map(Number)
  return children.flatMap((child) => [child, ...descendants(child)])
}

function bytesOf(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readIfThere(`/proc/${pid}/status`))?.[1] ?? 0) * 1024
}

/** One that has ended has none. */
function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
