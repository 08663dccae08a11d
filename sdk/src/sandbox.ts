import { clientOf, type Atoll, type ClientOptions, type RequestOptions } from './atoll.ts'
import type { AttachOptions } from './attached.ts'
import { Checkpoint, type Forks, type ForkOptions } from './checkpoint.ts'
import { SandboxEgress } from './egress.ts'
import { AtollError, makeError, type ErrorCode } from './errors.ts'
import { type FollowedResult, runCommand, type RunOptions, spawnCommand, type SpawnOptions } from './command.ts'
import { Files } from './files.ts'
import { pagesOf } from './pages.ts'
import { fetchPort, waitForPort, type WaitForPortOptions } from './ports.ts'
import { Process } from './process.ts'
import { pause } from './retry.ts'
import type {
  CheckpointOptions,
  ConnectOptions,
  CreateSandboxOptions,
  ListSandboxesOptions,
  PreviewOptions,
  TerminalOptions,
  UpdateSandboxOptions,
  WakeOptions,
} from './sandbox-options.ts'
import { Terminal } from './terminal.ts'
import { type CompareOptions, comparisonOf, openPatch, type PatchTextOptions, readPatch } from './trees.ts'
import type {
  Autoscale,
  CheckpointInfo,
  DiskComparison,
  Limits,
  ListeningPort,
  PreviewInfo,
  PreviewVisit,
  ProcessInfo,
  SandboxInfo,
  SandboxMetrics,
  SandboxTree,
  Scaled,
  ScalingLock,
  StartResult,
  SystemProcess,
} from './types.ts'

const checkpointPollMs = 100
const checkpointWaitMs = 600_000

/**
 * A machine of your own that starts in tens of milliseconds.
 *
 * ```js
 * await using sandbox = await Sandbox.create({ ttlSeconds: 600 })
 * const { stdout } = await sandbox.run('uname -a')
 * ```
 */
export class Sandbox implements AsyncDisposable {
  readonly id: string
  readonly files: Files
  readonly egress: SandboxEgress
  /** The token that its previews demand, if one was asked for: shown by its creation alone. */
  readonly previewToken: string | undefined
  readonly #client: Atoll
  readonly #path: string
  /** Host under which its previews answer. */
  readonly #domain: string

  /** Use {@link Sandbox.create} or {@link Sandbox.connect}. */
  constructor(client: Atoll, { sandboxID, sandboxDomain, ...rest }: StartResult | SandboxInfo) {
    this.id = sandboxID
    this.#client = client
    this.#path = `/api/sandboxes/${sandboxID}`
    this.#domain = sandboxDomain
    this.files = new Files(client, this.#path)
    this.egress = new SandboxEgress(client, this.#path)
    this.previewToken = 'previewAuthToken' in rest ? rest.previewAuthToken : undefined
  }

  static async create(options: CreateSandboxOptions = {}): Promise<Sandbox> {
    const {
      client: given,
      name,
      template,
      snapshot,
      image,
      ttlSeconds,
      onIdle,
      maxAgeSeconds,
      previewToken,
      cpuCount,
      memoryMB,
      diskMB,
      envs,
      metadata,
      volumes,
      user,
      secretStore,
      secrets,
      egress,
      egressAllowlist,
      secretAllowedHosts,
      ...request
    } = options
    const client = clientOf({ client: given })
    const json = {
      name,
      templateID: template,
      ...{ snapshot, image },
      timeout: ttlSeconds,
      ...{ onIdle, maxAgeSeconds },
      ...{ cpuCount, memoryMB, diskMB, envs, metadata, volumes, user },
      ...{ secretStore, secrets, egress, egressAllowlist, secretAllowedHosts },
      previewAuth: previewToken === undefined ? undefined : { scheme: 'bearer', token: previewToken },
    }
    return new Sandbox(client, await client.json('POST', '/api/sandboxes', { json, creates: true, ...request }))
  }

  /** Returns an existing sandbox by its id or name; it wakes at its first use. Throws `NotFoundError`. */
  static async connect(
    idOrName: string,
    { client: given, ttlSeconds, ...request }: ConnectOptions = {},
  ): Promise<Sandbox> {
    const client = clientOf({ client: given })
    const info = await client.json<SandboxInfo>('GET', `/api/sandboxes/${encodeURIComponent(idOrName)}`, request)
    const sandbox = new Sandbox(client, info)
    const isLonger = ttlSeconds !== undefined && info.timeout !== 0 && (ttlSeconds === 0 || ttlSeconds > info.timeout)
    if (isLonger) await sandbox.setTtl(ttlSeconds, request)
    return sandbox
  }

  /** Starts a sandbox that goes on from a checkpoint, its id or `SANDBOX/NAME`, with its processes where they were. */
  static async fork(checkpointId: string, options: ForkOptions & ClientOptions = {}): Promise<Sandbox> {
    const client = clientOf(options)
    return new Sandbox(client, await startFrom<StartResult>(client, checkpointId, options))
  }

  /** Starts several sandboxes from a checkpoint; one that did not start is an error in the list. */
  static async forkMany(
    checkpointId: string,
    count: number,
    options: ForkOptions & ClientOptions = {},
  ): Promise<(Sandbox | AtollError)[]> {
    const client = clientOf(options)
    const { sandboxes } = await startFrom<{ sandboxes: Started[] }>(client, checkpointId, { count, ...options })
    return sandboxes.map((started) => {
      if ('sandboxID' in started) return new Sandbox(client, started)
      const { error, code, ...details } = started
      return makeError(code, error, { details })
    })
  }

  /** All sandboxes that match, newest first. */
  static list({
    client,
    status,
    name,
    metadata = {},
    tags = {},
    ...request
  }: ListSandboxesOptions = {}): AsyncIterable<SandboxInfo> {
    const pairs = Object.entries(metadata).map(([key, value]) => `${key}=${value}`)
    const tag = Object.entries(tags).map(([key, value]) => (value === true ? key : `${key}=${value}`))
    return pagesOf(clientOf({ client }), '/api/sandboxes', { status, name, metadata: pairs, tag }, request)
  }

  /** The sandbox as the server has it now. */
  async info(options: RequestOptions = {}): Promise<SandboxInfo> {
    return await this.#client.json('GET', this.#path, options)
  }

  /**
   * Runs a command to its end. A command that fails is no error: look at `exitCode` (124 and `timedOut` after `timeoutSeconds`). It is never run
   * twice, and ends when `signal` aborts.
   */
  async run(command: string, options: RunOptions = {}): Promise<FollowedResult> {
    return await runCommand(this.#client, `${this.#path}/exec`, command, options)
  }

  /** Starts a command and returns at once. It runs on without a connection. */
  async spawn(command: string, options: SpawnOptions = {}): Promise<Process> {
    return await spawnCommand(this.#client, `${this.#path}/exec`, command, options)
  }

  /** A command that `spawn` has started, from here or elsewhere. */
  attach(processId: string, options: AttachOptions = {}): Process {
    return new Process(this.#client, `${this.#path}/exec/${encodeURIComponent(processId)}`, options)
  }

  /** The commands of `spawn` that run, and those that ended in the last ten minutes. */
  async spawned(options: RequestOptions = {}): Promise<ProcessInfo[]> {
    return await this.#client.json('GET', `${this.#path}/exec`, options)
  }

  async terminal(options: TerminalOptions = {}): Promise<Terminal> {
    const { signal, requestTimeoutMs, ...json } = options
    const call = { json, creates: true, signal, requestTimeoutMs }
    const { sessionID } = await this.#client.json<{ sessionID: string }>('POST', `${this.#path}/pty`, call)
    return this.attachTerminal(sessionID, { signal })
  }

  /** The terminals that run, and those that ended in the last ten minutes. */
  async terminals(options: RequestOptions = {}): Promise<ProcessInfo[]> {
    return await this.#client.json('GET', `${this.#path}/pty`, options)
  }

  /** A terminal that `terminal` has started, from here or elsewhere. */
  attachTerminal(terminalId: string, options: AttachOptions = {}): Terminal {
    return new Terminal(this.#client, `${this.#path}/pty/${encodeURIComponent(terminalId)}`, options)
  }

  /** Usage of the sandbox, now and in the last hour. It is not woken. */
  async metrics(options: RequestOptions = {}): Promise<SandboxMetrics> {
    return await this.#client.json('GET', `${this.#path}/metrics`, options)
  }

  /** All processes of the sandbox, whoever has started them. */
  async processes(options: RequestOptions = {}): Promise<SystemProcess[]> {
    return await this.#client.json('GET', `${this.#path}/processes`, options)
  }

  /** Sends a signal to one of `processes`, SIGTERM by default. */
  async signal(pid: number, signal = 15, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', `${this.#path}/processes/${pid}`, { query: { signal }, ...options })
  }

  /** The ports on which its servers listen, with their URLs. */
  async ports(options: RequestOptions = {}): Promise<ListeningPort[]> {
    return await this.#client.json('GET', `${this.#path}/ports`, options)
  }

  /** Waits until a server listens on a port. Throws `RequestTimeoutError` when none does in time. */
  async waitForPort(port: number, options: WaitForPortOptions = {}): Promise<ListeningPort> {
    return await waitForPort((request) => this.ports(request), port, options)
  }

  /**
   * Asks a server in the sandbox, from any program: with the key of the client, which the server does not see, and without the names of
   * previews. `path` has the query. It takes what `fetch` takes and returns what that returns; only redirections to another server are
   * returned and not followed. An error of Atoll is thrown, such as `NothingListeningError`; an error status of the server is its answer.
   */
  async fetch(port: number, path: string, init: RequestInit = {}): Promise<Response> {
    const hosts = [new URL(this.url(port)).host, new URL(this.#client.url).host]
    return await fetchPort({ client: this.#client, path: this.#path, port, hosts }, path, init)
  }

  /** The preview URL of a port. */
  url(port: number): string {
    const { protocol } = new URL(this.#client.url)
    return `${protocol}//${this.id}-p${port}.${this.#domain}`
  }

  /** Sets the token and the domain of a port's preview. What is left out stays. */
  async preview(port: number, { domain, token, ...request }: PreviewOptions = {}): Promise<PreviewInfo> {
    const authConfig = typeof token === 'string' ? { scheme: 'bearer', token } : token
    const json = { port, domain, authConfig }
    return await this.#client.json('POST', `${this.#path}/preview`, { json, creates: true, ...request })
  }

  async previews(options: RequestOptions = {}): Promise<PreviewInfo[]> {
    return await this.#client.json('GET', `${this.#path}/preview`, options)
  }

  /** A URL that opens a port's preview in a browser or in a frame of it, also where the preview demands a token: good for a minute. Nothing is woken. */
  async visitPreview(port: number, options: RequestOptions = {}): Promise<PreviewVisit> {
    return await this.#client.json('POST', `${this.#path}/preview/${port}/visit`, { repeat: 'always', ...options })
  }

  async deletePreview(port: number, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', `${this.#path}/preview/${port}`, options)
  }

  /** Freezes this moment. Returns when the checkpoint is ready; the sandbox runs on. */
  async checkpoint({ name, kind, keep, expiresInSeconds, ...request }: CheckpointOptions = {}): Promise<Checkpoint> {
    const json = {
      name: name ?? new Date().toISOString(),
      kind,
      expiresInSeconds,
      retentionPolicy: keep === undefined ? undefined : { mode: 'delete_oldest', maxCount: keep },
    }
    const path = `${this.#path}/checkpoints`
    let info = await this.#client.json<CheckpointInfo>('POST', path, { json, creates: true, ...request })
    for (const until = Date.now() + checkpointWaitMs; info.status === 'processing' && Date.now() < until;) {
      await pause(checkpointPollMs, request.signal)
      const all = await this.#client.json<CheckpointInfo[]>('GET', path, request)
      info = all.find(({ id }) => id === info.id) ?? info
    }
    if (info.status === 'failed') throw new AtollError(info.error ?? 'the checkpoint failed')
    return new Checkpoint(this.#client, info, forksOf(this.#client))
  }

  /** Checkpoints of the sandbox, oldest first, without those of turns of a session. */
  async checkpoints(options: RequestOptions = {}): Promise<Checkpoint[]> {
    const all = await this.#client.json<CheckpointInfo[]>('GET', `${this.#path}/checkpoints`, options)
    return all.map((info) => new Checkpoint(this.#client, info, forksOf(this.#client)))
  }

  /** Puts the sandbox back to a checkpoint, under its own id. */
  async restore(checkpoint: Checkpoint | string, options: RequestOptions = {}): Promise<void> {
    const id = typeof checkpoint === 'string' ? checkpoint : checkpoint.id
    const path = `${this.#path}/checkpoints/${encodeURIComponent(id)}/restore`
    await this.#client.json('POST', path, { repeat: 'refused', ...options })
  }

  /** All sandboxes and checkpoints that have the same beginning. Nothing is woken. */
  async tree(options: RequestOptions = {}): Promise<SandboxTree> {
    return await this.#client.json('GET', `${this.#path}/tree`, options)
  }

  /**
   * What differs between the files of two checkpoints, or of one and the present, as git sees them. Nothing is woken. Throws `NotFoundError`
   * for a checkpoint that is not in the tree of the sandbox.
   */
  async diff(options: CompareOptions): Promise<DiskComparison> {
    return await this.#client.json('GET', ...comparisonOf(this.#path, options))
  }

  /** The same as a unified diff, which `git apply` takes. Throws `TooLargeError` for one that is longer than `bytesMax`. */
  async patch({ bytesMax, ...options }: PatchTextOptions): Promise<string> {
    return await readPatch(this.#client, comparisonOf(this.#path, options), bytesMax)
  }

  /** The same of any length, up to 64 MiB. */
  async patchStream(options: CompareOptions): Promise<ReadableStream<Uint8Array>> {
    return await openPatch(this.#client, comparisonOf(this.#path, options))
  }

  /** Saves its memory and lets it go; the next use wakes it with its processes. */
  async hibernate(options: RequestOptions = {}): Promise<{ sizeBytes: number }> {
    return await this.#client.json('POST', `${this.#path}/hibernate`, { repeat: 'always', ...options })
  }

  /** Wakes the sandbox. A running one stays as it is. */
  async wake({ memory, ...request }: WakeOptions = {}): Promise<SandboxInfo> {
    return await this.#client.json('POST', `${this.#path}/wake`, { json: { memory }, repeat: 'always', ...request })
  }

  /** Ends the processes of the sandbox and starts it anew on its disk. */
  async reboot(options: RequestOptions = {}): Promise<void> {
    await this.#client.json('POST', `${this.#path}/reboot`, options)
  }

  /** Changes its memory, and CPU in step, while it runs. Turns autoscale off. */
  async scale(memoryMB: number, options: RequestOptions = {}): Promise<Scaled> {
    return await this.#client.json('POST', `${this.#path}/scale`, { json: { memoryMB }, repeat: 'always', ...options })
  }

  /** Changes its memory, its CPU (100 is one), or both, and leaves autoscale as it is. */
  async setLimits(limits: { memoryMB?: number; cpuPercent?: number }, options: RequestOptions = {}): Promise<Limits> {
    return await this.#client.json('PUT', `${this.#path}/limits`, { json: limits, ...options })
  }

  /** Lets its memory follow its use between two bounds, or stops that. */
  async setAutoscale(
    autoscale: { enabled: true; minMemoryMB: number; maxMemoryMB: number } | { enabled: false },
    options: RequestOptions = {},
  ): Promise<Autoscale> {
    return await this.#client.json('PUT', `${this.#path}/autoscale`, { json: autoscale, ...options })
  }

  async autoscale(options: RequestOptions = {}): Promise<Autoscale> {
    return await this.#client.json('GET', `${this.#path}/autoscale`, options)
  }

  /** A locked sandbox keeps its sizes; locking turns autoscale off. */
  async setScalingLock(locked: boolean, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('PUT', `${this.#path}/scaling-lock`, { json: { locked }, ...options })
  }

  async isScalingLocked(options: RequestOptions = {}): Promise<boolean> {
    const { locked } = await this.#client.json<ScalingLock>('GET', `${this.#path}/scaling-lock`, options)
    return locked
  }

  /** Sets its idle timeout, longer or shorter; 0: never. */
  async setTtl(ttlSeconds: number, options: RequestOptions = {}): Promise<void> {
    const json = { timeout: ttlSeconds }
    await this.#client.json('POST', `${this.#path}/timeout`, { json, repeat: 'always', ...options })
  }

  /** Changes its name, which `null` takes away, and what ends it; what is left out stays. Throws `ConflictError` for a name that is taken. */
  async update(
    { name, ttlSeconds, onIdle, maxAgeSeconds }: UpdateSandboxOptions,
    options: RequestOptions = {},
  ): Promise<SandboxInfo> {
    const json = { name, timeout: ttlSeconds, onIdle, maxAgeSeconds }
    return await this.#client.json('PATCH', this.#path, { json, repeat: 'always', ...options })
  }

  async tags(options: RequestOptions = {}): Promise<Record<string, string>> {
    const { tags } = await this.#client.json<{ tags: Record<string, string> }>('GET', `${this.#path}/tags`, options)
    return tags
  }

  /** Replaces all tags of the sandbox. */
  async setTags(tags: Record<string, string>, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('PUT', `${this.#path}/tags`, { json: tags, ...options })
  }

  /** Stops the sandbox for good. Its checkpoints stay. Harmless when it is stopped already. */
  async delete(options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', this.#path, options)
  }

  /** Deletes it at the end of a block with `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.delete()
  }
}

type Started = StartResult | { error: string; code: ErrorCode }

async function startFrom<Answer>(
  client: Atoll,
  checkpointId: string,
  { ttlSeconds, signal, requestTimeoutMs, ...given }: ForkOptions & { count?: number; client?: Atoll | undefined },
): Promise<Answer> {
  const { name, onIdle, maxAgeSeconds, envs, memoryMB, volumes, user, count } = given
  const { secretStore, secrets, egress, egressAllowlist, secretAllowedHosts } = given
  const json = {
    ...{ name, timeout: ttlSeconds, onIdle, maxAgeSeconds, envs, memoryMB, volumes, user, count },
    ...{ secretStore, secrets, egress, egressAllowlist, secretAllowedHosts },
  }
  const path = `/api/sandboxes/from-checkpoint/${encodeURIComponent(checkpointId)}`
  return await client.json('POST', path, { json, creates: true, signal, requestTimeoutMs })
}

function forksOf(client: Atoll): Forks {
  return {
    one: (id, options) => Sandbox.fork(id, { client, ...options }),
    many: (id, count, options) => Sandbox.forkMany(id, count, { client, ...options }),
  }
}
