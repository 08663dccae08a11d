/** What is there after a loss of power: each acknowledged thing, or a state that docs/operate/reliability.md names for its loss. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { HostNames } from '../../src/runtime/host-names.ts'
import { readEvents } from '../e2e/event-stream.ts'
import { sh } from '../e2e/sandbox-calls.ts'
import type { AtollServer } from '../e2e/server.ts'
import { startCounter, sumOf } from './load.ts'
import type { Deletion, KnownCheckpoint, KnownFile, KnownSandbox, Ledger } from './ledger.ts'

const run = promisify(execFile)

export class Findings {
  /** Losses that nothing tells, and wrong contents. */
  readonly faults: string[] = []
  /** Losses that are told, by kind. */
  readonly told = new Map<string, number>()

  tell(kind: string): void {
    this.told.set(kind, (this.told.get(kind) ?? 0) + 1)
  }
}

interface SandboxBody {
  status: string
  reason?: string
  metadata: Record<string, string>
  tags: Record<string, string>
  timeout: number
}

/** Looks at everything once, drops from the ledger what is lost, and leaves few sandboxes and checkpoints for the next time. */
export async function verify(server: AtollServer, ledger: Ledger): Promise<Findings> {
  const findings = new Findings()
  const kept: KnownSandbox[] = []
  for (const sandbox of ledger.sandboxes) {
    if (await new Look(server, findings, sandbox).isThere()) kept.push(sandbox)
  }
  await verifyVolumes(server, ledger, findings)
  await verifyImages(server, ledger, findings)
  await verifySessions(server, ledger, findings)
  await verifyLog(server, ledger, findings)
  const { stdout } = await run('btrfs', ['scrub', 'start', '-B', new HostNames(server.dataDir).poolDir])
  if (!stdout.includes('no errors found')) findings.faults.push(`scrub: ${stdout}`)
  ledger.sandboxes = await keepFew(server, kept)
  return findings
}

/** One sandbox with what belongs to it. */
class Look {
  readonly #server: AtollServer
  readonly #findings: Findings
  readonly #sandbox: KnownSandbox

  constructor(server: AtollServer, findings: Findings, sandbox: KnownSandbox) {
    this.#server = server
    this.#findings = findings
    this.#sandbox = sandbox
  }

  async isThere(): Promise<boolean> {
    const { id, deletion, metadata, tag, timeout, sleeps } = this.#sandbox
    const found = await get<SandboxBody>(this.#server, `/api/sandboxes/${id}`)
    const isGone = found === undefined || found.status === 'stopped'
    if (!isPossible(deletion, isGone)) return this.#fault(`is ${found?.status ?? 'unknown'}, its deletion ${deletion}`)
    if (isGone) return false
    if (metadata !== '' && found.metadata['name'] !== metadata) this.#fault('has lost its metadata')
    if (!tag.allows(found.tags['round'] ?? ''))
      this.#fault(`has the tag ${found.tags['round']}, not ${tag.acknowledged}`)
    if (!timeout.allows(found.timeout)) this.#fault(`has the timeout ${found.timeout}, not ${timeout.acknowledged}`)
    tag.settle(found.tags['round'] ?? '')
    timeout.settle(found.timeout)
    await this.#previews()
    await this.#checkpoints()
    if (found.status === 'error' && found.reason === 'host_lost') {
      this.#findings.tell('sandbox')
      return this.#verifySyncedLoss()
    }
    if (found.status !== 'hibernated') return this.#fault(`is ${found.status} (${found.reason})`)
    if (found.reason !== undefined && found.reason !== 'host_lost') this.#fault(`hibernates with ${found.reason}`)
    if (!sleeps && found.reason === undefined) this.#findings.tell('hibernation that was not answered')
    if (sleeps && found.reason === 'host_lost') this.#findings.tell('memory of a hibernation')
    await this.#files(found.reason === 'host_lost')
    await this.#signedUrl()
    return true
  }

  /** A sandbox that has synced something is there. */
  #verifySyncedLoss(): false {
    const isSynced = [...this.#sandbox.files].some(([path, { isSynced: is }]) => is && path.startsWith('/root/'))
    if (isSynced || this.#sandbox.checkpoints.length > 0) this.#fault('is lost, and had files that were on the disk')
    return false
  }

  /** Its next operation starts it; memory and disk are of one moment. */
  async #files(isTold: boolean): Promise<void> {
    const { id, files } = this.#sandbox
    const sums = await sumsIn(this.#server, id, files)
    for (const [path, file] of files) {
      const has = sums.get(path)
      if (has === file.sum) {
        files.set(path, { sum: file.sum, isSynced: true })
        continue
      }
      const isAllowed = isTold || file.isTried === true
      if (isAllowed && has !== undefined && has === file.replaced) {
        if (file.isTried !== true) this.#findings.tell('upload, the file before it')
        files.set(path, { sum: has, isSynced: true })
        continue
      }
      files.delete(path)
      if (file.replaced !== undefined)
        this.#fault(`${path} is ${has ?? 'gone'}, not ${file.sum}, nor, as told, ${file.replaced} (${isTold})`)
      else if (file.isSynced || !isTold)
        this.#fault(`${path} is ${has ?? 'gone'}, and was ${file.isSynced ? 'synced' : 'not told as lost'}`)
      else this.#findings.tell(has === undefined ? 'upload, absent' : await this.#kindOfLoss(path, file))
    }
    const disagreement = await sh(this.#server, id, 'cat /root/disagreement 2>/dev/null || true')
    if (disagreement !== '') this.#fault(`memory and disk are of two moments: ${disagreement}`)
  }

  /** What is left of an upload: nothing else than what was written, or zeros in the place of that. */
  async #kindOfLoss(path: string, { content = Buffer.alloc(0) }: KnownFile): Promise<string> {
    const answer = await this.#server.fetch(`/api/sandboxes/${this.#sandbox.id}/files?path=${path}`)
    const has = Buffer.from(await answer.arrayBuffer())
    if (has.length === 0) return 'upload, empty'
    if (content.subarray(0, has.length).equals(has)) return 'upload, cut short'
    if (!has.every((byte, at) => byte === 0 || byte === content[at]))
      this.#fault(`${path} holds what nobody has written`)
    return 'upload, zeros in it'
  }

  async #previews(): Promise<void> {
    const { id, previews } = this.#sandbox
    const listed = await get<{ port: number }[]>(this.#server, `/api/sandboxes/${id}/preview`)
    const ports = new Set(listed?.map(({ port }) => port))
    for (const port of previews) if (!ports.has(port)) this.#fault(`has lost the preview of port ${port}`)
  }

  async #signedUrl(): Promise<void> {
    const { signed } = this.#sandbox
    if (signed === undefined) return
    const answer = await fetch(this.#server.url + signed)
    const text = await answer.text()
    if (!answer.ok) this.#fault(`a signed address is not known any more: ${answer.status} ${text}`)
  }

  async #checkpoints(): Promise<void> {
    const { id, checkpoints } = this.#sandbox
    const path = `/api/sandboxes/${id}/checkpoints`
    const listed = (await get<{ id: string; status: string; error?: string }[]>(this.#server, path)) ?? []
    const kept: KnownCheckpoint[] = []
    for (const checkpoint of checkpoints) {
      const found = listed.find((each) => each.id === checkpoint.id)
      if (!isPossible(checkpoint.deletion, found === undefined)) {
        this.#fault(`checkpoint ${checkpoint.id} is ${found?.status ?? 'gone'}, its deletion ${checkpoint.deletion}`)
      } else if (found?.status === 'ready') {
        if (await this.#isWhole(checkpoint)) kept.push(checkpoint)
      } else if (found !== undefined) {
        const isTold = checkpoint.kind === 'full' && /not whole/.test(found.error ?? '')
        if (isTold) this.#findings.tell('full checkpoint')
        else this.#fault(`${checkpoint.kind} checkpoint ${checkpoint.id} is ${found.status}: ${found.error}`)
      }
    }
    this.#sandbox.checkpoints = kept
  }

  /** A sandbox that starts from it has all that was there before it was taken. */
  async #isWhole({ id, kind, files, patches }: KnownCheckpoint): Promise<boolean> {
    const listed = await get<{ id: string }[]>(this.#server, `/api/sandboxes/checkpoints/${id}/patches`)
    const found = new Set(listed?.map((patch) => patch.id))
    for (const patch of patches) if (!found.has(patch)) this.#fault(`checkpoint ${id} has lost patch ${patch}`)
    const before = this.#findings.faults.length
    const body = { timeout: 0, volumes: [] }
    const answer = await this.#server
      .json('POST', `/api/sandboxes/from-checkpoint/${id}`, kind === 'full' ? { timeout: 0 } : body)
      .catch((error: unknown) => String(error))
    if (typeof answer === 'string') {
      // Processes that have a volume open go on only where it can be mounted.
      if (!(kind === 'full' && answer.includes('409')))
        this.#fault(`no sandbox starts from checkpoint ${id}: ${answer}`)
      return this.#findings.faults.length === before
    }
    const fork = (answer as { sandboxID: string }).sandboxID
    const sums = await sumsIn(this.#server, fork, files)
    for (const [path, { sum }] of files) {
      if (sums.get(path) !== sum) this.#fault(`checkpoint ${id} (${kind}): ${path} is ${sums.get(path) ?? 'gone'}`)
    }
    const disagreement = await sh(this.#server, fork, 'cat /root/disagreement 2>/dev/null || true')
    if (disagreement !== '')
      this.#fault(`checkpoint ${id} (${kind}): memory and disk are of two moments: ${disagreement}`)
    await this.#server.json('DELETE', `/api/sandboxes/${fork}`)
    return this.#findings.faults.length === before
  }

  #fault(what: string): false {
    this.#findings.faults.push(`sandbox ${this.#sandbox.id} ${what}`)
    return false
  }
}

async function verifyVolumes(server: AtollServer, { volumes }: Ledger, { faults }: Findings): Promise<void> {
  for (const { name, snapshots } of volumes) {
    const found = await get<{ usedBytes?: number }>(server, `/api/volumes/${name}`)
    if (found?.usedBytes === undefined)
      faults.push(`volume ${name} is ${found === undefined ? 'gone' : 'without its data'}`)
    const listed = await get<{ name: string }[]>(server, `/api/volumes/${name}/snapshots`)
    const names = new Set(listed?.map((snapshot) => snapshot.name))
    for (const snapshot of snapshots) if (!names.has(snapshot)) faults.push(`snapshot ${snapshot} of ${name} is gone`)
    const [last] = [...snapshots].slice(-1)
    if (last === undefined || !names.has(last)) continue
    const clone = `${name}-${last}`
    await server
      .json('POST', '/api/volumes', { name: clone, from: `${name}@${last}` })
      .then(() => server.json('DELETE', `/api/volumes/${clone}`))
      .catch((error: unknown) => faults.push(`snapshot ${last} of ${name} has no data: ${String(error)}`))
  }
  // The last one may be in use, and takes snapshots on.
  volumes.splice(0, volumes.length - 1)
}

async function verifyImages(server: AtollServer, { images }: Ledger, { faults }: Findings): Promise<void> {
  for (const [name, sum] of images) {
    const found = await get<{ status: string }>(server, `/api/snapshots/${name}`)
    if (found?.status !== 'ready') {
      faults.push(`image ${name} is ${found?.status ?? 'gone'}`)
      continue
    }
    const { sandboxID } = (await server.json('POST', '/api/sandboxes', { timeout: 0, snapshot: name })) as {
      sandboxID: string
    }
    // An image of an archive has no programs.
    const answer = await server.fetch(`/api/sandboxes/${sandboxID}/files?path=/built`)
    const built = Buffer.from(await answer.arrayBuffer())
    if (sumOf(built) !== sum) faults.push(`image ${name} holds ${built.length} other bytes (${answer.status})`)
    await server.json('DELETE', `/api/sandboxes/${sandboxID}`)
    await server.json('DELETE', `/api/images/${name}`)
    images.delete(name)
  }
}

async function verifySessions(server: AtollServer, { sessions }: Ledger, { faults }: Findings): Promise<void> {
  for (const { id, messages, events } of sessions) {
    const found = await get<{ messages: { id: string; content: string }[] }>(server, `/v1/sessions/${id}`)
    const said = new Map(found?.messages.map((message) => [message.id, message.content]))
    for (const [message, content] of messages) {
      if (said.get(message) !== content)
        faults.push(`session ${id}: message ${content} is ${said.get(message) ?? 'gone'}`)
    }
    const last = Math.max(0, ...events.keys())
    if (last === 0) continue
    const read = await readEvents(server, id, (event) => event.id >= last)
    const again = new Map(read.map((event) => [event.id, JSON.stringify(event.data)]))
    for (const [number, data] of events) {
      if (again.get(number) !== data) faults.push(`session ${id}: event ${number} is ${again.get(number) ?? 'gone'}`)
    }
  }
  // Each life has a session of its own, which is looked at once more.
  for (const { id } of sessions.splice(0, sessions.length)) await server.json('DELETE', `/v1/sessions/${id}`)
}

async function verifyLog(server: AtollServer, { events }: Ledger, { faults }: Findings): Promise<void> {
  const again = new Map<number, string>()
  for (let after = 0; ;) {
    const page = (await server.json('GET', `/api/events?follow=false&limit=1000&after=${after}`)) as {
      events: { number: number }[]
      next: number
      newest: number
    }
    for (const event of page.events) again.set(event.number, JSON.stringify(event))
    if (page.next >= page.newest) break
    after = page.next
  }
  for (const [number, event] of events) {
    if (again.get(number) !== event)
      faults.push(`event ${number} of the log is ${again.get(number) ?? 'gone'}, not ${event}`)
  }
}

async function keepFew(server: AtollServer, sandboxes: KnownSandbox[]): Promise<KnownSandbox[]> {
  for (const { id } of sandboxes.slice(0, -2)) await server.json('DELETE', `/api/sandboxes/${id}`)
  const kept = sandboxes.slice(-2)
  for (const sandbox of kept) {
    for (const { id } of sandbox.checkpoints.slice(0, -2))
      await server.json('DELETE', `/api/sandboxes/${sandbox.id}/checkpoints/${id}`)
    sandbox.checkpoints = sandbox.checkpoints.slice(-2)
    // One that goes on from its memory counts already.
    if ((await sh(server, sandbox.id, 'pgrep --full [r]oot/counter || true')) === '')
      await startCounter(server, sandbox.id)
  }
  return kept
}

function isPossible(deletion: Deletion, isGone: boolean): boolean {
  return deletion === 'tried' || isGone === (deletion === 'acknowledged')
}

/** The sums of those files that are there. */
async function sumsIn(
  server: AtollServer,
  sandboxId: string,
  files: ReadonlyMap<string, KnownFile>,
): Promise<Map<string, string>> {
  if (files.size === 0) return new Map()
  const lines = await sh(server, sandboxId, `sha256sum ${[...files.keys()].join(' ')} 2>/dev/null || true`)
  return new Map(
    lines
      .split('\n')
      .filter(Boolean)
      .map((line) => [line.slice(66), line.slice(0, 64)]),
  )
}

/** Undefined for what is not there. */
async function get<Body>(server: AtollServer, path: string): Promise<Body | undefined> {
  const answer = await server.fetch(path)
  const text = await answer.text()
  if (answer.status === 404 || answer.status === 410) return undefined
  if (!answer.ok) throw new Error(`GET ${path}: ${answer.status} ${text}`)
  return JSON.parse(text) as Body
}
