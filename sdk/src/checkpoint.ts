import type { Atoll, RequestOptions } from './atoll.ts'
import type { EgressOptions } from './egress-policy.ts'
import type { AtollError } from './errors.ts'
import type { Sandbox } from './sandbox.ts'
import type { CheckpointInfo, ListedCheckpointInfo, PatchInfo } from './types.ts'
import type { VolumeMount } from './volumes.ts'

export interface ForkOptions extends RequestOptions, EgressOptions {
  /** Of one fork, not of several. */
  name?: string | undefined
  /** Idle timeout of each fork; 0: never. Default: the server's. */
  ttlSeconds?: number | undefined
  /** As in `Sandbox.create`. */
  onIdle?: 'hibernate' | 'stop' | undefined
  /** Of each fork, from its own creation. */
  maxAgeSeconds?: number | undefined
  /** Set on top of the environment of the checkpoint. */
  envs?: Record<string, string> | undefined
  memoryMB?: number | undefined
  /** Replaces the volumes of the checkpoint, for example by clones of those that its sandbox writes. */
  volumes?: readonly VolumeMount[] | undefined
  /** Replaces the user of the checkpoint. */
  user?: string | undefined
}

export interface PatchOptions extends RequestOptions {
  description?: string | undefined
  /** When it runs besides each start: `on_resume` at each wake too. Default `on_wake`. */
  strategy?: PatchInfo['strategy'] | undefined
}

/** Starts sandboxes from a checkpoint; given by `sandbox.ts`. */
export interface Forks {
  one(checkpointId: string, options: ForkOptions): Promise<Sandbox>
  many(checkpointId: string, count: number, options: ForkOptions): Promise<(Sandbox | AtollError)[]>
}

/** A moment of a sandbox: its disk and, where it is `full`, its running memory. It outlives the sandbox. */
export class Checkpoint {
  readonly id: string
  /** The checkpoint as it was read. */
  readonly info: CheckpointInfo
  readonly #client: Atoll
  readonly #forks: Forks

  /** Use {@link Sandbox.checkpoint}. */
  constructor(client: Atoll, info: CheckpointInfo, forks: Forks) {
    this.id = info.id
    this.info = info
    this.#client = client
    this.#forks = forks
  }

  /** Starts a sandbox that goes on from here, with its processes where they were. */
  async fork(options: ForkOptions = {}): Promise<Sandbox> {
    return await this.#forks.one(this.id, options)
  }

  /** Starts several sandboxes; one that did not start is an error in the list. */
  async forkMany(count: number, options: ForkOptions = {}): Promise<(Sandbox | AtollError)[]> {
    return await this.#forks.many(this.id, count, options)
  }

  /** Adds a script that runs in every sandbox started from here. */
  async patch(script: string, { description, strategy, ...options }: PatchOptions = {}): Promise<PatchInfo> {
    const json = { script, description, strategy }
    const { patch } = await this.#client.json<{ patch: PatchInfo }>('POST', this.#patches, {
      json,
      creates: true,
      ...options,
    })
    return patch
  }

  async patches(options: RequestOptions = {}): Promise<PatchInfo[]> {
    return await this.#client.json('GET', this.#patches, options)
  }

  async deletePatch(patchId: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', `${this.#patches}/${encodeURIComponent(patchId)}`, options)
  }

  /** Sets when it is deleted by itself, in seconds from now; `null`: never. */
  async setExpiry(expiresInSeconds: number | null, options: RequestOptions = {}): Promise<ListedCheckpointInfo> {
    return await this.#client.json('PATCH', this.#path, { json: { expiresInSeconds }, repeat: 'always', ...options })
  }

  /** Deletes the checkpoint. Sandboxes that were started from it stay. */
  async delete(options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', this.#path, options)
  }

  get #path(): string {
    return `/api/checkpoints/${encodeURIComponent(this.id)}`
  }

  get #patches(): string {
    return `/api/sandboxes/checkpoints/${this.id}/patches`
  }
}
