/** Clients that change everything at once until the power is cut, and note what was acknowledged. */
import { createHash, randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { streamEvents } from '../e2e/event-stream.ts'
import type { AtollServer } from '../e2e/server.ts'
import type { Random } from '../e2e/soak/random.ts'
import { dockerArchiveOf, imageOf, tarOf } from '../support/oci-image.ts'
import { type KnownSandbox, type KnownSession, type Ledger, Setting } from './ledger.ts'
import { type Checkpoint } from '../e2e/sandbox-calls.ts'

const sandboxesMax = 4
const uploadBytesMax = 300_000
const pauseMs = 20

/** Counts in memory and in a file, and notes when the two are not the same any more. */
const counter = `
import os, time
fd = os.open('/root/counter', os.O_RDWR | os.O_CREAT, 0o600)
n = int(os.pread(fd, 16, 0) or b'0')
while True:
    on_disk = int(os.pread(fd, 16, 0) or b'0')
    if on_disk != n:
        note = os.open('/root/disagreement', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(note, b'memory %d, disk %d\\n' % (n, on_disk))
        os.fsync(note)
        n = on_disk
    n += 1
    os.pwrite(fd, b'%-16d' % n, 0)
    if n % 3 == 0:
        os.fsync(fd)
    time.sleep(0.05)
`

export class Load {
  readonly #server: AtollServer
  readonly #ledger: Ledger
  readonly #over = new AbortController()
  readonly #running: Promise<void>[]
  #names = 0

  constructor(server: AtollServer, ledger: Ledger, random: (name: string) => Random, round: number) {
    this.#server = server
    this.#ledger = ledger
    this.#names = round * 1_000_000
    const sandboxes = [1, 2].map((worker) => random(`sandboxes ${worker}`))
    const workers = [
      ...sandboxes.map((choices, index) => this.#repeat(() => this.#useSandbox(choices, index))),
      this.#repeat(() => this.#makeVolume(random('volumes'))),
      this.#repeat(() => this.#makeImage(random('images'))),
      this.#repeat(() => this.#talk()),
      this.#repeat(() => this.#readLog()),
    ]
    this.#running = workers
  }

  /** After the power is gone. */
  async end(): Promise<void> {
    this.#over.abort()
    await Promise.all(this.#running)
  }

  /** Calls fail with the power, and some for good reasons before: what counts is what was acknowledged. */
  async #repeat(work: () => Promise<void>): Promise<void> {
    while (!this.#over.signal.aborted) {
      await work().catch(() => undefined)
      await sleep(pauseMs, undefined, { signal: this.#over.signal }).catch(() => undefined)
    }
  }

  async #call(kind: string, method: string, path: string, body?: unknown): Promise<unknown> {
    const answer = await this.#fetch(path, {
      method,
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } }),
    })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
    if (!this.#ledger.admits(kind)) throw new Error('too late')
    return text === '' ? undefined : JSON.parse(text)
  }

  async #fetch(path: string, init: RequestInit): Promise<Response> {
    return await this.#server.fetch(path, { ...init, signal: this.#over.signal })
  }

  async #useSandbox(random: Random, index: number): Promise<void> {
    const all = this.#ledger.sandboxes
    // Each worker has sandboxes of its own, whose calls come one after the other.
    const own = all.filter(({ deletion }, at) => at % 2 === index && deletion === undefined)
    if (own.length === 0 || (all.length < sandboxesMax && random.next() < 0.1)) return await this.#createSandbox()
    const sandbox = random.pick(own as [KnownSandbox, ...KnownSandbox[]])
    const kind = random.weighed({
      upload: 8,
      write: 6,
      tag: 3,
      timeout: 2,
      preview: 2,
      disk: 3,
      full: 2,
      patch: 2,
      hibernate: 2,
      fork: 1,
      remove: 1,
      removeCheckpoint: 1,
    })
    sandbox.sleeps = false
    const path = `/api/sandboxes/${sandbox.id}`
    if (kind === 'upload') await this.#upload(random, sandbox)
    if (kind === 'write') await this.#writeSynced(random, sandbox)
    if (kind === 'tag') {
      const value = this.#name()
      await sandbox.tag.put(value, async () => {
        await this.#call('setting', 'PUT', `${path}/tags`, { round: value })
        return true
      })
    }
    if (kind === 'timeout') {
      const timeout = random.between(3600, 86_000)
      await sandbox.timeout.put(timeout, async () => {
        await this.#call('setting', 'POST', `${path}/timeout`, { timeout })
        return true
      })
    }
    if (kind === 'preview') {
      const port = random.between(2000, 60_000)
      await this.#call('setting', 'POST', `${path}/preview`, { port })
      sandbox.previews.add(port)
    }
    if (kind === 'disk' || kind === 'full') await this.#takeCheckpoint(sandbox, kind === 'disk' ? 'disk_only' : 'full')
    if (kind === 'hibernate') {
      await this.#call('hibernation', 'POST', `${path}/hibernate`)
      sandbox.sleeps = true
    }
    const [checkpoint] = sandbox.checkpoints.filter(({ deletion }) => deletion === undefined)
    if (kind === 'patch' && checkpoint !== undefined) {
      const patch = { script: '# none', description: this.#name(), strategy: 'on_resume' }
      const made = await this.#call('patch', 'POST', `/api/sandboxes/checkpoints/${checkpoint.id}/patches`, patch)
      checkpoint.patches.add((made as { patch: { id: string } }).patch.id)
    }
    if (kind === 'fork' && checkpoint !== undefined && all.length < sandboxesMax) {
      const from = `/api/sandboxes/from-checkpoint/${checkpoint.id}`
      const { sandboxID } = (await this.#call('fork', 'POST', from, { timeout: 0 })) as { sandboxID: string }
      all.push(known(sandboxID, '', new Map(checkpoint.files)))
    }
    if (kind === 'remove' && own.length > 1 && sandbox.checkpoints.length === 0) {
      sandbox.deletion = 'tried'
      await this.#call('deletion', 'DELETE', path)
      sandbox.deletion = 'acknowledged'
    }
    if (kind === 'removeCheckpoint' && checkpoint !== undefined && sandbox.checkpoints.length > 2) {
      checkpoint.deletion = 'tried'
      await this.#call('deletion', 'DELETE', `${path}/checkpoints/${checkpoint.id}`)
      checkpoint.deletion = 'acknowledged'
    }
  }

  async #createSandbox(): Promise<void> {
    const metadata = this.#name()
    const volume = this.#ledger.volumes.at(-1)?.name
    const isFree = !this.#ledger.sandboxes.some((other) => other.volume === volume)
    const volumes = volume !== undefined && isFree ? [{ name: volume, path: '/data' }] : []
    const body = { timeout: 0, memoryMB: 256, metadata: { name: metadata }, volumes }
    const { sandboxID } = (await this.#call('sandbox', 'POST', '/api/sandboxes', body)) as { sandboxID: string }
    const sandbox = known(sandboxID, metadata, new Map())
    if (volumes.length > 0) sandbox.volume = volume
    this.#ledger.sandboxes.push(sandbox)
    const signing = { path: '/etc/hostname', expiresIn: 86_400 }
    const made = await this.#call('key', 'POST', `/api/sandboxes/${sandboxID}/files/download-url`, signing)
    sandbox.signed = new URL((made as { url: string }).url).pathname + new URL((made as { url: string }).url).search
    await startCounter(this.#server, sandboxID)
  }

  async #upload(random: Random, sandbox: KnownSandbox): Promise<void> {
    const content = randomBytes(random.between(1, uploadBytesMax))
    const synced = [...sandbox.files].filter(([, { isSynced }]) => isSynced)
    const [replaced, before] = random.next() < 0.5 ? (synced.at(random.between(0, synced.length - 1)) ?? []) : []
    const file =
      replaced ?? `${sandbox.volume !== undefined && random.next() < 0.5 ? '/data' : '/root'}/upload-${this.#name()}`
    const earlier = before === undefined ? {} : { replaced: before.sum }
    // Until the answer it is the one or the other.
    if (before !== undefined)
      sandbox.files.set(file, {
        ...before,
        content,
        replaced: before.sum,
        sum: sumOf(content),
        isSynced: false,
        isTried: true,
      })
    const answer = await this.#fetch(`/api/sandboxes/${sandbox.id}/files?path=${file}`, {
      method: 'PUT',
      body: content,
      headers: { 'Content-Type': 'application/octet-stream' },
    })
    await answer.text()
    if (!answer.ok && before !== undefined) sandbox.files.set(file, before)
    if (!answer.ok || !this.#ledger.admits('upload')) return
    sandbox.files.set(file, { sum: sumOf(content), content, isSynced: false, ...earlier })
  }

  /** As a program does that wants its file to be there: fsync of the file, which is new. */
  async #writeSynced(random: Random, sandbox: KnownSandbox): Promise<void> {
    const file = `${sandbox.volume !== undefined && random.next() < 0.5 ? '/data' : '/root'}/synced-${this.#name()}`
    const script = `head -c ${random.between(1, uploadBytesMax)} /dev/urandom > ${file} && sync ${file} && sha256sum < ${file}`
    const body = { cmd: 'bash', args: ['-c', script] }
    const done = await this.#call('write', 'POST', `/api/sandboxes/${sandbox.id}/exec/run`, body)
    const { exitCode, stdout } = done as { exitCode: number; stdout: string }
    if (exitCode === 0) sandbox.files.set(file, { sum: stdout.slice(0, 64), isSynced: true })
  }

  async #takeCheckpoint(sandbox: KnownSandbox, kind: 'full' | 'disk_only'): Promise<void> {
    const path = `/api/sandboxes/${sandbox.id}/checkpoints`
    // What is on a volume is not part of it.
    const files = new Map([...sandbox.files].filter(([file]) => file.startsWith('/root/')))
    const { id } = (await this.#call('request', 'POST', path, { name: this.#name(), kind })) as Checkpoint
    for (;;) {
      const found = ((await this.#call('request', 'GET', path)) as Checkpoint[]).find((each) => each.id === id)
      if (found?.status !== 'processing') {
        if (found?.status !== 'ready' || !this.#ledger.admits(`checkpoint ${kind}`)) return
        sandbox.checkpoints.push({ id, kind, files, patches: new Set(), deletion: undefined })
        // The snapshot has brought the disk that it was taken of to the disk too.
        if (kind === 'disk_only')
          for (const [name, file] of files) sandbox.files.set(name, { sum: file.sum, isSynced: true })
        return
      }
      await sleep(pauseMs)
    }
  }

  async #makeVolume(random: Random): Promise<void> {
    const { volumes } = this.#ledger
    const last = volumes.at(-1)
    if (last !== undefined && random.next() < 0.7) {
      const snapshot = this.#name()
      await this.#call('volume', 'POST', `/api/volumes/${last.name}/snapshots`, { name: snapshot })
      last.snapshots.add(snapshot)
    } else {
      const name = this.#name()
      await this.#call('volume', 'POST', '/api/volumes', { name, sizeMB: 64 })
      volumes.push({ name, snapshots: new Set() })
    }
    await sleep(random.between(50, 500))
  }

  async #makeImage(random: Random): Promise<void> {
    const name = this.#name()
    const content = randomBytes(random.between(1, uploadBytesMax))
    const isArchive = random.next() < 0.5
    if (isArchive) {
      const body = dockerArchiveOf(imageOf([tarOf([{ path: 'built', content }])]))
      const answer = await this.#fetch(`/api/images/${name}/archive`, { method: 'PUT', body: new Uint8Array(body) })
      await answer.text()
      if (!answer.ok || !this.#ledger.admits('image of an archive')) return
    } else {
      const steps = [{ type: 'add_file', args: { path: '/built', content: content.toString('base64') } }]
      const made = await this.#call('image', 'POST', '/api/snapshots', { name, image: { base: 'base', steps } })
      if ((made as { status: string }).status !== 'ready') return
    }
    this.#ledger.images.set(name, sumOf(content))
  }

  /** A session with messages, and a reader of its stream. */
  async #talk(): Promise<void> {
    const session = this.#ledger.sessions.at(-1) ?? (await this.#createSession())
    const last = Math.max(0, ...session.events.keys())
    const messages = this.#repeat(async () => {
      const message = this.#name()
      const path = `/v1/sessions/${session.id}/messages`
      const said = await this.#call('message', 'POST', path, { message, user_id: 'ada' })
      for (const { id, content } of (said as SessionBody).messages) {
        if (content === message) session.messages.set(id, content)
      }
      await sleep(300)
    })
    const reader = this.#repeat(async () => {
      const options = { lastEventId: last, signal: this.#over.signal }
      for await (const { id, data } of streamEvents(this.#server, session.id, options)) {
        if (this.#ledger.admits('stream event')) session.events.set(id, JSON.stringify(data))
      }
    })
    await Promise.all([messages, reader])
  }

  async #createSession(): Promise<KnownSession> {
    const prompt = `A page about ${this.#name()}`
    const made = (await this.#call('session', 'POST', '/v1/sessions', { prompt, user_id: 'ada' })) as SessionBody
    const session: KnownSession = {
      id: made.id,
      messages: new Map(made.messages.map(({ id, content }) => [id, content])),
      events: new Map(),
    }
    this.#ledger.sessions.push(session)
    return session
  }

  async #readLog(): Promise<void> {
    const after = Math.max(0, ...this.#ledger.events.keys())
    const path = `/api/events?follow=false&limit=1000&after=${after}`
    const { events } = (await this.#call('request', 'GET', path)) as { events: { number: number }[] }
    for (const event of events) {
      if (this.#ledger.admits('log event')) this.#ledger.events.set(event.number, JSON.stringify(event))
    }
  }

  #name(): string {
    return `n${(this.#names += 1)}`
  }
}

export async function startCounter(server: AtollServer, sandboxId: string): Promise<void> {
  await server.json('POST', `/api/sandboxes/${sandboxId}/exec`, { cmd: 'python3', args: ['-c', counter] })
}

interface SessionBody {
  id: string
  messages: { id: string; content: string }[]
}

export function sumOf(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}

function known(id: string, metadata: string, files: KnownSandbox['files']): KnownSandbox {
  return {
    id,
    metadata,
    files,
    tag: new Setting(''),
    timeout: new Setting(0),
    previews: new Set(),
    checkpoints: [],
    volume: undefined,
    deletion: undefined,
    sleeps: false,
    signed: undefined,
  }
}
