import { Readable } from 'node:stream'
import { ServiceError } from '../errors.ts'
import type { EventBus } from '../events/index.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { newId } from '../lib/id.ts'
import type { CreatePatch, PatchService } from './api.ts'
import type { Guest } from './ports/guest.ts'
import { demand } from './input.ts'
import { newInternalProcessId } from './process-id.ts'
import type { SandboxLimits } from './limits.ts'
import { type Patch, type PatchStrategy, patchStrategies } from './patch.ts'
import type { Sandbox } from './sandbox.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

const descriptionLengthMax = 4096
const stderrLengthMax = 16 * 1024
const outputLengthMax = 4 * 1024
const waitMs = 60_000

export class Patches implements PatchService {
  readonly #store: SandboxStore
  readonly #limits: SandboxLimits
  readonly #bus: EventBus

  constructor(store: SandboxStore, limits: SandboxLimits, bus: EventBus) {
    this.#store = store
    this.#limits = limits
    this.#bus = bus
  }

  async create(
    orgId: string,
    checkpointId: string,
    input: CreatePatch,
    { creation }: CreateOptions = {},
  ): Promise<Patch> {
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) return await this.#made(orgId, checkpointId, madeId)
    const { script, description = '', strategy = 'on_wake' } = input
    demand(script.trim() !== '', 'script', 'must not be empty')
    demand(!script.includes('\0'), 'script', 'must not contain NUL')
    if (Buffer.byteLength(script) > this.#limits.patchScriptBytesMax) {
      throw new ServiceError('too_large', `script must be at most ${this.#limits.patchScriptBytesMax} bytes`)
    }
    demand(
      description.length <= descriptionLengthMax,
      'description',
      `must be at most ${descriptionLengthMax} characters`,
    )
    demand(patchStrategies.includes(strategy), 'strategy', `must be one of ${patchStrategies.join(', ')}`)
    await this.#demandCheckpoint(orgId, checkpointId)
    const patch = { id: newId('pa-'), checkpointId, script, description, strategy, createdAt: new Date() }
    return await this.#store.insertPatch(patch, creation)
  }

  async list(orgId: string, checkpointId: string): Promise<Patch[]> {
    await this.#demandCheckpoint(orgId, checkpointId)
    return await this.#store.listPatches(checkpointId)
  }

  async delete(orgId: string, checkpointId: string, patchId: string): Promise<void> {
    await this.#demandCheckpoint(orgId, checkpointId)
    if (!(await this.#store.deletePatch(checkpointId, patchId))) {
      throw new ServiceError('not_found', `checkpoint ${checkpointId} has no patch ${patchId}`)
    }
  }

  /** The patches of the checkpoint that a sandbox was started from, as they are now, in sequence order. */
  async of(sandbox: Sandbox): Promise<Patch[]> {
    return sandbox.fromCheckpointId === undefined ? [] : await this.#store.listPatches(sandbox.fromCheckpointId)
  }

  /**
   * Runs those of these strategies in turn. Throws `patch_failed` with `patchId`, `exitCode`, `stderr` at the first that fails. The
   * signal kills the one that runs.
   */
  async run(
    guest: Guest,
    sandbox: Sandbox,
    patches: Patch[],
    strategies: readonly PatchStrategy[],
    signal: AbortSignal,
  ): Promise<void> {
    for (const patch of patches) {
      signal.throwIfAborted()
      if (strategies.includes(patch.strategy)) await this.#run(guest, sandbox, patch, signal)
    }
  }

  async #made(orgId: string, checkpointId: string, patchId: string): Promise<Patch> {
    const patch = (await this.list(orgId, checkpointId)).find(({ id }) => id === patchId)
    if (!patch) throw new ServiceError('not_found', `checkpoint ${checkpointId} has no patch ${patchId}`)
    return patch
  }

  // The script travels as a file: an argument may be at most 128 KiB long, and on standard input it would be what a command
  // of its own reads.
  async #run(guest: Guest, sandbox: Sandbox, patch: Patch, signal: AbortSignal): Promise<void> {
    const path = `/tmp/.atoll-${patch.id}.sh`
    const id = newInternalProcessId()
    await guest.writeFile(path, Readable.from([Buffer.from(patch.script)]), { mode: 0o600 })
    try {
      await guest.spawn({ id, argv: ['bash', path], envs: sandbox.envs, timeoutMs: this.#limits.patchTimeoutMs })
      let process = await guest.process(id, waitMs, signal)
      while (process.running) process = await guest.process(id, waitMs, signal)
      const { stdout, stderr } = await guest.output(id)
      const exitCode = process.exitCode ?? 0
      this.#bus.publish({
        type: 'patch_applied',
        sandboxId: sandbox.id,
        patchId: patch.id,
        sequence: patch.sequence,
        exitCode,
        output: `${stdout.toString()}${stderr.toString()}`.slice(-outputLengthMax),
      })
      if (exitCode === 0) return
      throw new ServiceError('patch_failed', `patch ${patch.sequence} (${patch.id}) exited with ${exitCode}`, {
        details: { patchId: patch.id, exitCode, stderr: stderr.toString().slice(-stderrLengthMax) },
      })
    } finally {
      await guest.release(id).catch(() => undefined)
      await guest.remove(path).catch(() => undefined)
    }
  }

  async #demandCheckpoint(orgId: string, checkpointId: string): Promise<void> {
    if (await this.#store.checkpoint(checkpointId, orgId)) return
    throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
  }
}
