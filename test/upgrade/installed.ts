/** A data directory with a database of PostgreSQL 15 and records in it, and the commands that a user runs on it. */
import assert from 'node:assert/strict'
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { openOwnStore } from '../../src/server/installation.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { allPages, eventOf, idsOf, messageOf, newOrganisation, newSession, sandboxOf } from '../store/kit.ts'

const projectDir = join(import.meta.dirname, '../..')
const sandboxCount = 300
const sessionCount = 20

/** Ids of all that the database holds. */
export interface Content {
  orgId: string
  sandboxes: string[]
  messages: string[]
}

export interface Ended {
  status: number | null
  output: string
}

export class Installed {
  readonly dataDir: string
  readonly content: Content
  readonly #socketDir: string

  constructor(dataDir: string, content: Content) {
    this.dataDir = dataDir
    this.#socketDir = new HostNames(dataDir).databaseDir
    this.content = content
  }

  /** Of PostgreSQL 15, as no newer one was installed then; its server was stopped, or was killed and has left it running. */
  static async make(t: TestContext, end: 'stopped' | 'killed' = 'stopped'): Promise<Installed> {
    const dataDir = await mkdtemp('/var/tmp/atoll-upgrade-')
    const hide = 'mount -t tmpfs none /usr/lib/postgresql/17; exec "$@"'
    const node = [process.execPath, import.meta.filename, dataDir, end]
    const maker = spawn('unshare', ['--mount', '--', 'sh', '-ec', hide, 'sh', ...node], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let text = ''
    maker.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()))
    await once(maker, 'close')
    const made = new Installed(dataDir, JSON.parse(text) as Content)
    t.after(() => made.remove())
    assert.equal(await made.version(), '15')
    return made
  }

  async copy(t: TestContext): Promise<Installed> {
    const dataDir = await mkdtemp('/var/tmp/atoll-upgrade-')
    execFileSync('cp', ['--archive', '--reflink=auto', `${this.dataDir}/.`, dataDir])
    const copied = new Installed(dataDir, this.content)
    t.after(() => copied.remove())
    return copied
  }

  async version(folder = 'db'): Promise<string> {
    return (await readFile(join(this.dataDir, folder, 'PG_VERSION'), 'utf8')).trim()
  }

  /** A start of a server, which adopts, completes and recovers; then all records are there. */
  async assertWhole(): Promise<void> {
    await using store = await openOwnStore({ dataDir: this.dataDir })
    assert.deepEqual(await contentOf(store, this.content.orgId), this.content)
    await store.sandboxes.insertSandbox(sandboxOf(this.content.orgId, { id: 'sb-after' }))
    await store.sandboxes.updateSandbox('sb-after', { status: 'stopped' })
    await store.sandboxes.purgeSandboxes(['sb-after'])
  }

  begin(env: Record<string, string> = {}, argv: readonly string[] = []): ChildProcess {
    return spawn(process.execPath, ['src/server/upgrade-database.ts', ...argv], {
      cwd: projectDir,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: process.env['PATH'], ATOLL_DATA_DIR: this.dataDir, ...env },
    })
  }

  async upgrade(env?: Record<string, string>, argv?: readonly string[]): Promise<Ended> {
    return await ended(this.begin(env, argv))
  }

  /** Says no, with a reason, and changes nothing. */
  async refuses(pattern: RegExp, env?: Record<string, string>): Promise<void> {
    const { status, output } = await this.upgrade(env)
    assert.equal(status, 2, output)
    assert.match(output, pattern)
  }

  private async remove(): Promise<void> {
    for (const left of [this.#socketDir, this.dataDir]) await rm(left, { recursive: true, force: true })
  }
}

export async function ended(child: ChildProcess): Promise<Ended> {
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => (output += String(chunk)))
  await once(child, 'close')
  return { status: child.exitCode, output }
}

type Store = Awaited<ReturnType<typeof openOwnStore>>

async function contentOf(store: Store, orgId: string): Promise<Content> {
  const pages = await allPages((page) =>
    store.sandboxes.listSandboxes({ orgId, statuses: ['running'], limit: 100, ...page }),
  )
  const sessions = await store.sessions.sessionsIn('running')
  const histories = await store.sessions.histories(idsOf(sessions))
  const messages = [...histories.values()].flatMap((history) => idsOf(history.messages))
  return { orgId, sandboxes: pages.flatMap(idsOf).toSorted(), messages: messages.toSorted() }
}

async function fill(dataDir: string, end: string): Promise<void> {
  const store = await openOwnStore({ dataDir })
  const { id: orgId } = await newOrganisation(store)
  for (let count = 0; count < sandboxCount; count++) await store.sandboxes.insertSandbox(sandboxOf(orgId))
  for (let count = 0; count < sessionCount; count++) {
    const { id } = await newSession(store, orgId)
    const change = { addMessages: [messageOf('héllo ✓ '.repeat(2000))], addEvents: [eventOf('later')] }
    await store.sessions.commit(id, { ...change, addStream: [{ type: 'assistant', filler: 'x'.repeat(4000) }] })
  }
  console.log(JSON.stringify(await contentOf(store, orgId)))
  if (end === 'killed') process.kill(process.pid, 'SIGKILL')
  await store.close()
}

if (import.meta.main) {
  const [dataDir = '', end = ''] = process.argv.slice(2)
  await fill(dataDir, end)
}
