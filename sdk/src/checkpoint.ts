import { clientOf, type Atoll, type ClientOptions, type RequestOptions } from './atoll.ts'
import { makeError, type AtollError, type ErrorCode } from './errors.ts'
import { Sandbox } from './sandbox.ts'
import type { CheckpointInfo, PatchInfo, StartResult } from './types.ts'

export interface ForkOptions extends RequestOptions {
  /** Idle timeout of each fork; 0: never. Default: the server's. */
  ttlSeconds?: number | undefined
  /** Over those of the checkpoint. */
  envs?: Record<string, string> | undefined
  memoryMB?: number | undefined
}

export interface PatchOptions extends RequestOptions {
  description?: string | undefined
  /** When it runs besides each start: `on_resume` at each wake too. Default `on_wake`. */
  strategy?: PatchInfo['strategy'] | undefined
}

type Started = StartResult | { error: string; code: ErrorCode }

/** A moment of a sandbox: its disk and, where it is `full`, its running memory. It outlives the sandbox. */
export class Checkpoint {
  readonly id: string
  /** As it was when it was read. */
  readonly info: CheckpointInfo
  readonly #client: Atoll

  /** Use {@link Sandbox.checkpoint}. */
  constructor(client: Atoll, info: CheckpointInfo) {
    this.id = info.id
    this.info = info
    this.#client = client
  }

  /** Starts a sandbox that goes on from here, with its processes where they were. */
  async fork({ ttlSeconds, envs, memoryMB, ...options }: ForkOptions = {}): Promise<Sandbox> {
    return await Checkpoint.fork(this.id, { ttlSeconds, envs, memoryMB, client: this.#client, ...options })
  }

  /** Starts many; those that did not start are errors. */
  async forkMany(
    count: number,
    { ttlSeconds, envs, memoryMB, ...options }: ForkOptions = {},
  ): Promise<(Sandbox | AtollError)[]> {
    const json = { count, timeout: ttlSeconds, envs, memoryMB }
    const path = `/api/sandboxes/from-checkpoint/${this.id}`
    const call = { json, creates: true, ...options }
    const { sandboxes } = await this.#client.json<{ sandboxes: Started[] }>('POST', path, call)
    return sandboxes.map((started) => {
      if ('sandboxID' in started) return new Sandbox(this.#client, started)
      const { error, code, ...details } = started
      return makeError(code, error, { details })
    })
  }

  /** Has a script run in every sandbox that starts from here. */
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

  /** Sandboxes that were started from it stay. */
  async delete(options: RequestOptions = {}): Promise<void> {
    const path = `/api/sandboxes/${this.info.sandboxId}/checkpoints/${this.id}`
    await this.#client.json('DELETE', path, options)
  }

  /** Starts a sandbox from the checkpoint of an id. */
  static async fork(
    checkpointId: string,
    { client: given, ttlSeconds, envs, memoryMB, ...options }: ForkOptions & ClientOptions = {},
  ): Promise<Sandbox> {
    const client = clientOf({ client: given })
    const json = { timeout: ttlSeconds, envs, memoryMB }
    const path = `/api/sandboxes/from-checkpoint/${encodeURIComponent(checkpointId)}`
    return new Sandbox(client, await client.json<StartResult>('POST', path, { json, creates: true, ...options }))
  }

  get #patches(): string {
    return `/api/sandboxes/checkpoints/${this.id}/patches`
  }
}
