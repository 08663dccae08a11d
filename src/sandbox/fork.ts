import { Semaphore } from '../lib/async/semaphore.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { sha256 } from '../lib/secret.ts'
import type { Checkpoint } from './checkpoint-records.ts'
import { assertInput, assertNewSandbox, previewToken } from './input.ts'
import type { Egress } from './egress/egress.ts'
import { clientEnvs } from './egress/environment.ts'
import { prepareEgress } from './egress/held.ts'
import { takeEgress } from './egress/input.ts'
import type { Lifecycle, LifecycleContext } from './lifecycle.ts'
import type { Patch, Patches } from './patch.ts'
import {
  type CreateSandbox,
  isBuild,
  newSandbox,
  type SandboxDefaults,
  type StartedSandbox,
  withDefaults,
  withUser,
} from './sandbox.ts'
import { assertUserExists } from './user.ts'
import type { MountedVolume, VolumeMount, Volumes } from './volume.ts'

/** `volumes`: in place of those of the checkpoint. From a full one they have the same paths and are as writable. */
export interface StartFromCheckpoint extends Omit<CreateSandbox, 'image'> {
  handover?: Handover | undefined
}

/**
 * The start is for somebody else than who used the source. It gets what lies on the disk, and the policies of its egress. It gets no memory, which
 * holds what processes held; no secret store; no volume, which holds the present; and none of these variables.
 */
export interface Handover {
  withoutEnvs: readonly string[]
}

/** Starts of one `startMany` call at a time. */
const startsAtOnceMax = 10

export interface ForksContext extends Pick<LifecycleContext, 'store' | 'limits'> {
  lifecycle: Lifecycle
  patches: Patches
  egress: Egress | undefined
  volumes: Volumes
  /** What sandboxes of clients have that ask for nothing else. */
  defaults: SandboxDefaults
  /** What sandboxes of the organisation may start from, once it is `ready`. Throws `conflict` for one that has failed. */
  ready: (orgId: string, checkpointId: string) => Promise<Checkpoint>
}

/** Sandboxes that start from checkpoints. */
export class Forks {
  readonly #context: ForksContext

  constructor(context: ForksContext) {
    this.#context = context
  }

  /** Starts a sandbox from it; waits for one that is `processing`. Patches run before it returns (`patch_failed`). */
  async start(
    orgId: string,
    checkpointId: string,
    input: StartFromCheckpoint,
    { creation }: CreateOptions = {},
  ): Promise<StartedSandbox> {
    const made = await this.#context.lifecycle.findMade(orgId, creation)
    if (made) return { sandbox: made, ...shownToken(input, creation) }
    return await this.#start(orgId, await this.#findStartable(orgId, checkpointId, input), input, creation)
  }

  /** Starts `count` sandboxes, each with a result of its own; throws what would fail every one of them. */
  async startMany(
    orgId: string,
    checkpointId: string,
    input: StartFromCheckpoint,
    count: number,
    { creation }: CreateOptions = {},
  ): Promise<PromiseSettledResult<StartedSandbox>[]> {
    // Sandboxes that an earlier run of the request has made do not need the checkpoint any more.
    const isRepeat = creation !== undefined && creation.made.length > 0
    const [startable] = await Promise.allSettled([this.#findStartable(orgId, checkpointId, input)])
    if (startable.status === 'rejected' && !isRepeat) throw startable.reason
    const startOne = async (part?: Creation): Promise<StartedSandbox> => {
      const made = await this.#context.lifecycle.findMade(orgId, part)
      if (made) return { sandbox: made }
      if (startable.status === 'rejected') throw startable.reason
      return await this.#start(orgId, startable.value, input, part)
    }
    const semaphore = new Semaphore({ permits: startsAtOnceMax })
    const starts = Array.from({ length: count }, (_, index) => semaphore.use(() => startOne(creation?.part(index))))
    return await Promise.allSettled(starts)
  }

  /** Reads the patches once for the call: a patch that is created later applies to the next call. */
  async #findStartable(orgId: string, checkpointId: string, input: StartFromCheckpoint) {
    const { limits, store, ready } = this.#context
    assertNewSandbox(input, limits)
    const patches = await store.listPatches(checkpointId)
    const checkpoint = await ready(orgId, checkpointId)
    return { checkpoint, patches }
  }

  async #start(
    orgId: string,
    { checkpoint, patches }: { checkpoint: Checkpoint; patches: Patch[] },
    input: StartFromCheckpoint,
    creation?: Creation,
  ): Promise<StartedSandbox> {
    const asked = withDefaults(input, this.#context.defaults)
    const { given: ofEgress, rest } = takeEgress(asked)
    const { id = creation?.id('sb-'), envs, user, previewAuth: _auth, volumes: mounts, handover, ...given } = rest
    const { envs: savedEnvs, egress: savedEgress, ...sandboxConfig } = checkpoint.sandboxConfig
    const ownEnvs = { ...without(clientEnvs(savedEnvs, savedEgress), handover?.withoutEnvs), ...envs }
    const inherited = {
      egress: savedEgress,
      isForeign: checkpoint.orgId !== orgId,
      isHandedOver: handover !== undefined,
      checkpointId: checkpoint.id,
    }
    const prepared = await prepareEgress(this.#context.egress, orgId, ofEgress, {
      envs: ownEnvs,
      isBuild: id !== undefined && isBuild(id),
      inherited,
    })
    const volumes = handover === undefined ? await this.#resolveVolumes(orgId, checkpoint, mounts, id) : []
    const draft = newSandbox(orgId, {
      ...sandboxConfig,
      ...defined({ ...given, id }),
      volumes,
      envs: { ...prepared.envs, ...ownEnvs },
      egress: prepared.egress,
      commandDefaults: withUser(sandboxConfig.commandDefaults, user),
      fromCheckpointId: checkpoint.id,
    })
    const shown = shownToken(input, creation)
    if (shown.previewAuthToken !== undefined) draft.previewTokenHash = sha256(shown.previewAuthToken)
    const sandbox = await this.#context.lifecycle.create(draft, {
      isAnnounced: input.id !== undefined,
      keepsMemory: checkpoint.kind === 'full' && handover === undefined,
      isDiskOnly: handover !== undefined,
      creation,
      prepare: async (guest, starting, signal) => {
        await this.#context.patches.run('start', guest, starting, patches, signal)
        // A patch may have made the user.
        if (user !== undefined) await assertUserExists(guest, user)
      },
    })
    return { sandbox, ...shown }
  }

  /**
   * The volumes of a start belong to the organisation that starts, whoever owns the checkpoint. A second writer is a `conflict`, and so is
   * each start from a checkpoint whose source writes a volume.
   */
  async #resolveVolumes(
    orgId: string,
    { kind, volumes }: Checkpoint,
    given: readonly VolumeMount[] | undefined,
    sandboxId: string | undefined,
  ): Promise<MountedVolume[]> {
    if (given === undefined) return await this.#context.volumes.resolveAgain(orgId, volumes, sandboxId)
    const claimed = await this.#context.volumes.resolve(orgId, given, sandboxId)
    if (kind === 'full') {
      const [had, has] = [volumes, claimed].map((some) => some.map(({ path, readOnly }) => `${path} ${readOnly}`))
      const isAlike = had?.toSorted().join('\n') === has?.toSorted().join('\n')
      assertInput(isAlike, 'volumes', 'must have the paths and readOnly of those of a full checkpoint')
    }
    return claimed
  }
}

function without(envs: Record<string, string>, names: readonly string[] = []): Record<string, string> {
  return Object.fromEntries(Object.entries(envs).filter(([name]) => !names.includes(name)))
}

function shownToken({ previewAuth }: StartFromCheckpoint, creation?: Creation): { previewAuthToken?: string } {
  return defined({ previewAuthToken: previewAuth && previewToken(previewAuth, 'previewAuth', creation) })
}
