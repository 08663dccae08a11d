import { Readable } from 'node:stream'
import { ServiceError } from '../errors.ts'
import type { EventBus } from '../events/index.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { newId } from '../lib/id.ts'
import { assertInput } from './input.ts'
import type { Guest } from './ports/guest.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'
import { newInternalProcessId, runToEnd } from './process.ts'
import type { SandboxLimits } from './quota.ts'
import type { Sandbox } from './sandbox.ts'

/** Where patches run: at a start from the checkpoint, or at a wake of a sandbox that was started from it. */
export type PatchHook = 'start' | 'wake'

/** When each strategy runs, by the names of the OpenComputer API (`protocol/http/checkpoints.ts`): its `on_wake` is the first start. */
const hooksOf = {
  on_wake: ['start'],
  on_resume: ['start', 'wake'],
} as const satisfies Record<string, readonly PatchHook[]>

export type PatchStrategy = keyof typeof hooksOf

export interface Patch {
  id: string
  checkpointId: string
  script: string
  description: string
  strategy: PatchStrategy
  /** 1, 2, 3 … in its checkpoint, never reused. */
  sequence: number
  createdAt: Date
}

export interface CreatePatch {
  script: string
  description?: string
  strategy?: PatchStrategy
}

export type PatchService = Pick<Patches, 'create' | 'list' | 'delete'>

const stderrLengthMax = 16 * 1024
const outputLengthMax = 4 * 1024

export class Patches {
  readonly #store: SandboxStore
  readonly #limits: SandboxLimits
  readonly #bus: EventBus

  constructor(store: SandboxStore, limits: SandboxLimits, bus: EventBus) {
    this.#store = store
    this.#limits = limits
    this.#bus = bus
  }

  async create(orgId: string, checkpointId: string, input: CreatePatch, options: CreateOptions = {}): Promise<Patch> {
    const [madeId] = options.creation?.made ?? []
    if (madeId !== undefined) return await this.#findMade(orgId, checkpointId, madeId)
    const { script, description = '', strategy = 'on_wake' } = input
    assertInput(script.trim() !== '', 'script', 'must not be empty')
    assertInput(!script.includes('\0'), 'script', 'must not contain NUL')
    if (Buffer.byteLength(script) > this.#limits.patchScriptBytesMax) {
      throw new ServiceError('too_large', `script must be at most ${this.#limits.patchScriptBytesMax} bytes`)
    }
    await this.#assertCheckpoint(orgId, checkpointId)
    const patch = { id: newId('pa-'), checkpointId, script, description, strategy, createdAt: new Date() }
    return await this.#store.insertPatch(patch, options.creation)
  }

  async list(orgId: string, checkpointId: string): Promise<Patch[]> {
    await this.#assertCheckpoint(orgId, checkpointId)
    return await this.#store.listPatches(checkpointId)
  }

  async delete(orgId: string, checkpointId: string, patchId: string): Promise<void> {
    await this.#assertCheckpoint(orgId, checkpointId)
    if (!(await this.#store.deletePatch(checkpointId, patchId))) throw noPatch(checkpointId, patchId)
  }

  /** The patches of the checkpoint that a sandbox was started from, as they are now, in sequence order. */
  async listFor(sandbox: Sandbox): Promise<Patch[]> {
    return sandbox.fromCheckpointId === undefined ? [] : await this.#store.listPatches(sandbox.fromCheckpointId)
  }

  /** Runs them in order; `patch_failed` with `patchId`, `exitCode`, `stderr` at the first failure. An abort kills the running one. */
  async run(hook: PatchHook, guest: Guest, sandbox: Sandbox, patches: Patch[], signal: AbortSignal): Promise<void> {
    for (const patch of patches) {
      signal.throwIfAborted()
      const hooks: readonly PatchHook[] = hooksOf[patch.strategy]
      if (hooks.includes(hook)) await this.#run(guest, sandbox, patch, signal)
    }
  }

  async #findMade(orgId: string, checkpointId: string, patchId: string): Promise<Patch> {
    const patch = (await this.list(orgId, checkpointId)).find(({ id }) => id === patchId)
    if (!patch) throw noPatch(checkpointId, patchId)
    return patch
  }

  // The script travels as a file. An argument is limited to 128 KiB, and commands of the script would read it from standard input.
  async #run(guest: Guest, sandbox: Sandbox, patch: Patch, signal: AbortSignal): Promise<void> {
    const path = `/tmp/.atoll-${patch.id}.sh`
    const id = newInternalProcessId()
    await guest.writeFile(path, Readable.from([Buffer.from(patch.script)]), { mode: 0o600 })
    try {
      const request = { id, argv: ['bash', path], envs: sandbox.envs, timeoutMs: this.#limits.patchTimeoutMs }
      const { exitCode, output } = await runToEnd(guest, request, signal, () => guest.output(id))
      const [stdout, stderr] = [output.stdout.toString(), output.stderr.toString()]
      this.#bus.publish({
        type: 'patch_applied',
        sandboxId: sandbox.id,
        patchId: patch.id,
        sequence: patch.sequence,
        exitCode,
        output: `${stdout}${stderr}`.slice(-outputLengthMax),
      })
      if (exitCode === 0) return
      throw new ServiceError('patch_failed', `patch ${patch.sequence} (${patch.id}) exited with ${exitCode}`, {
        details: { patchId: patch.id, exitCode, stderr: stderr.slice(-stderrLengthMax) },
      })
    } finally {
      await guest.remove(path).catch(() => undefined)
    }
  }

  async #assertCheckpoint(orgId: string, checkpointId: string): Promise<void> {
    if (await this.#store.checkpoint(checkpointId, orgId)) return
    throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
  }
}

function noPatch(checkpointId: string, patchId: string): ServiceError {
  return new ServiceError('not_found', `checkpoint ${checkpointId} has no patch ${patchId}`)
}
