import { ignoreNotFound, isServiceError, ServiceError } from '../errors.ts'
import type { Creation } from '../lib/creation.ts'
import type { FairYield } from '../lib/async/fair-yield.ts'
import { newId } from '../lib/id.ts'
import { defined } from '../lib/defined.ts'
import type { Checkpoint, CheckpointKind, SandboxService } from '../sandbox/index.ts'
import { copyOf, forkOf } from './forked-session.ts'
import { messagePages } from './history.ts'
import type { SessionDeps } from './service.ts'
import { type Message, type Session, type SessionEvent, startedEvent } from './session.ts'
import type { SessionStore } from './store.ts'

interface ForkDeps {
  store: SessionStore
  forkCheckpoints: ForkCheckpoints
  /** Yields between pages of histories. */
  pages: FairYield
  /** Records it if the organisation may have another one. */
  withRoom: (record: () => Promise<void>) => Promise<void>
}

/**
 * Records a session that goes on from where an idle one stands, with a sandbox that is not started yet. Its checkpoint is its own and
 * is removed when that sandbox has started. Throws what the checkpoint throws, and leaves nothing then.
 */
export async function forkSession(
  { store, forkCheckpoints, pages, withRoom }: ForkDeps,
  source: Session,
  { name, creation }: { name?: string; creation?: Creation },
): Promise<Session> {
  const id = newId('session_')
  return await forkCheckpoints.take(source, id, async (checkpoint) => {
    const said = (await Array.fromAsync(messagePages(store, pages, source.id))).flat()
    const { fork, messages, event } = sessionAfter(source, said, { id, name, checkpoint })
    await withRoom(() => store.createSession(fork, messages, event, { configOf: source.id, creation }))
    return fork
  })
}

function sessionAfter(
  source: Session,
  said: readonly Message[],
  { id, name, checkpoint }: { id: string; name: string | undefined; checkpoint: Checkpoint },
): { fork: Session; messages: Message[]; event: SessionEvent } {
  const from = { checkpointId: checkpoint.id, forkCheckpointOf: source.sandboxId }
  const fork = forkOf(source, { id, ...from, ...defined({ name, forkPoint: source.headTurnId }) })
  // Messages that came while the checkpoint was taken stay with the source.
  const messages = said.filter(({ state }) => state !== 'queued').map(copyOf)
  const event = startedEvent(`The session goes on from where ${source.id} stood.`, fork.createdAt)
  return { fork, messages, event }
}

type ForkCheckpointDeps = Pick<SessionDeps, 'store' | 'sandboxes' | 'log'>

type CheckpointRef = Pick<Checkpoint, 'orgId' | 'sandboxId' | 'id'>

/**
 * The checkpoints that forks start from. Each belongs to a running fork, whose row names it, or to a fork that is about to be
 * recorded. Its id derives from the id of the fork, so that one whose server has died can be recognised:
 *
 *     taken ──fork recorded──► owned ──the sandbox of the fork runs, or the fork ends──► removed
 *       └── no fork was recorded, or it has ended: `sweep` ─────────────────────────────────┘
 */
export class ForkCheckpoints {
  readonly #deps: ForkCheckpointDeps
  /** Checkpoints of forks that are about to be recorded. */
  readonly #taken = new Set<string>()

  constructor(deps: ForkCheckpointDeps) {
    this.#deps = deps
  }

  /** Takes one for the fork of this id, which `record` records. After a failure none is left, or the next sweep removes it. */
  async take<Result>(
    source: Session,
    forkId: string,
    record: (checkpoint: Checkpoint) => Promise<Result>,
  ): Promise<Result> {
    const { orgId, sandboxId } = source
    const id = forkId.replace('session_', 'cp-')
    await assertNoWriter(this.#deps.sandboxes, source)
    const checkpoints = await this.#deps.sandboxes.checkpoints.list(orgId, sandboxId)
    await this.#removeUnowned(checkpoints.filter(({ owner }) => owner === 'session'))
    this.#taken.add(id)
    try {
      return await record(await this.#take(source, { id, name: `fork ${forkId}` }))
    } catch (error) {
      this.#taken.delete(id)
      // After a failure the fork may have been recorded or not.
      await this.#removeUnowned([{ id, orgId, sandboxId }])
      throw error
    } finally {
      this.#taken.delete(id)
    }
  }

  /** Removes those that no fork has any use of. A removal that fails is logged, and tried again by the next sweep. */
  async sweep(): Promise<void> {
    await this.#removeUnowned(await this.#deps.sandboxes.checkpoints.listOwnedBy('session'))
  }

  async #removeUnowned(checkpoints: readonly CheckpointRef[]): Promise<void> {
    for (const checkpoint of checkpoints) {
      try {
        if (!(await this.#isOwned(checkpoint))) await removeCheckpoint(this.#deps.sandboxes, checkpoint)
      } catch (error) {
        this.#deps.log.warn({ err: error, checkpointId: checkpoint.id }, 'the checkpoint of a fork was left behind')
      }
    }
  }

  async #isOwned({ id, orgId }: CheckpointRef): Promise<boolean> {
    // In this order: a fork is recorded before its checkpoint leaves the set.
    if (this.#taken.has(id)) return true
    const fork = await this.#deps.store.head(id.replace('cp-', 'session_'), orgId)
    return fork?.status === 'running' && fork.checkpointId === id
  }

  /** Takes a checkpoint, with memory where possible, so that servers of the source run on in the fork; else of the disk alone. */
  async #take({ orgId, sandboxId }: Session, { id, name }: { id: string; name: string }): Promise<Checkpoint> {
    const { checkpoints } = this.#deps.sandboxes
    const take = async (kind: CheckpointKind): Promise<Checkpoint> => {
      await checkpoints.create(orgId, sandboxId, { id, owner: 'session', name, kind })
      const checkpoint = await checkpoints.settled(orgId, id)
      if (checkpoint.status === 'ready') return checkpoint
      await removeCheckpoint(this.#deps.sandboxes, checkpoint)
      throw new ServiceError('unavailable', `the session cannot be forked: ${checkpoint.error ?? 'no reason known'}`)
    }
    try {
      return await take('full')
    } catch (error) {
      // No CRIU, memory that it cannot dump, or as many full checkpoints as there may be.
      if (!isServiceError(error)) throw error
      return await take('disk_only')
    }
  }
}

/** Removes the checkpoint that was made for this fork. A repeat is harmless. */
export async function dropForkCheckpoint(sandboxes: SandboxService, session: Session): Promise<void> {
  const { orgId, checkpointId, forkCheckpointOf } = session
  if (checkpointId === undefined || forkCheckpointOf === undefined) return
  await removeCheckpoint(sandboxes, { id: checkpointId, orgId, sandboxId: forkCheckpointOf })
}

async function removeCheckpoint(sandboxes: SandboxService, { orgId, sandboxId, id }: CheckpointRef): Promise<void> {
  await sandboxes.checkpoints.delete(orgId, sandboxId, id).catch(ignoreNotFound)
}

/** A volume has one writer. */
export async function assertNoWriter(
  sandboxes: SandboxService,
  { orgId, sandboxId }: Pick<Session, 'orgId' | 'sandboxId'>,
): Promise<void> {
  const { volumes } = await sandboxes.get(orgId, sandboxId)
  const written = volumes.find(({ readOnly }) => !readOnly)
  if (written === undefined) return
  const message = `the sandbox of the session writes volume ${written.name}, which has one writer at a time`
  throw new ServiceError('conflict', `${message}: fork a session that has it readOnly`)
}
