import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import type { Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { Checkpoint } from '../sandbox/index.ts'
import type { CreateSession } from './api.ts'
import { unusedTokenHash } from './boot.ts'
import { checkCreate } from './input.ts'
import type { SessionDeps } from './service.ts'
import { type Message, type Session, type SessionEvent, startedEvent, unusedCounters } from './session.ts'

const retryAfterSeconds = 10
/** How long a creation waits for the check that its checkpoint exists. */
const checkpointCheckMs = 50

/** Records sessions that begin, within what an organisation may have. */
export class NewSessions {
  readonly #deps: Pick<SessionDeps, 'store' | 'sandboxes' | 'config' | 'sessionsMaxOf'>
  /** By organisation. */
  readonly #creations = new KeyedMutex()

  constructor(deps: Pick<SessionDeps, 'store' | 'sandboxes' | 'config' | 'sessionsMaxOf'>) {
    this.#deps = deps
  }

  /** Records one that has not been started yet. Throws what its volumes would make a sandbox throw now. */
  async make(
    orgId: string,
    input: CreateSession,
    creation: Creation | undefined,
  ): Promise<{ session: Session; message: Message; event: SessionEvent }> {
    const checkpoint =
      input.checkpointId === undefined ? undefined : await this.assertCheckpoint(orgId, input.checkpointId)
    const checked = checkCreate(input, this.#deps.config, checkpoint?.sandboxConfig.commandDefaults?.cwd)
    const { title } = checked
    const volumes = input.volumes?.length ? input.volumes : undefined
    if (volumes !== undefined) await this.#deps.sandboxes.assertVolumes(orgId, volumes)
    const ofEgress = defined({ secretStore: input.secretStore, egress: input.egress })
    await this.#deps.sandboxes.egress?.assertInput(orgId, ofEgress)
    const agentConfig = { ...checked.agentConfig, ...defined({ volumes: input.volumes }), ...ofEgress }
    await this.assertNameFree(orgId, input.name)
    const now = new Date()
    const { name, userId, userEmail, userName, checkpointId } = input
    const session: Session = {
      id: newId('session_'),
      orgId,
      userId,
      ...defined({ name, userEmail, userName, checkpointId }),
      status: 'running',
      activity: 'starting',
      sandboxId:
        checkpointId === undefined ? await this.#deps.sandboxes.newId(orgId, defined({ volumes })) : newId('sb-'),
      title,
      framework: '',
      artifacts: [],
      agentConfig,
      gatewayTokenHash: unusedTokenHash(),
      ...unusedCounters,
      createdAt: now,
      updatedAt: now,
    }
    const message: Message = {
      id: newId('msg_'),
      role: 'user',
      content: input.prompt,
      state: 'queued',
      createdAt: now,
    }
    const event = startedEvent('The session has started.', now)
    await this.withRoom(orgId, () => this.#deps.store.createSession(session, [message], event, { creation: creation }))
    return { session, message, event }
  }

  /** Creates a session under the lock of its organisation, so that concurrent calls do not all find the last unit free. */
  readonly withRoom = async <Result>(orgId: string, create: () => Promise<Result>): Promise<Result> => {
    const limit = this.#deps.sessionsMaxOf?.(orgId) ?? Infinity
    if (limit === Infinity) return await create()
    return await this.#creations.run(orgId, async () => {
      const active = await this.#deps.store.countRunning(orgId)
      if (active < limit) return await create()
      throw new ServiceError('rate_limited', `the organisation has ${active} sessions, the most it may have`, {
        details: { limit, active, retryAfterSeconds },
      })
    })
  }

  /** Before a warm sandbox is reserved or a checkpoint is taken. The database decides a race. */
  readonly assertNameFree = async (orgId: string, name: string | undefined): Promise<void> => {
    if (name === undefined || (await this.#deps.store.sessionNamed(name, orgId)) === undefined) return
    throw new ServiceError('conflict', 'name is that of another session', { details: { field: 'name' } })
  }

  /**
   * Returns a checkpoint, or undefined while it is being made. Throws `not_found` for one that does not exist and `conflict` for one that failed;
   * waits for none.
   */
  async assertCheckpoint(orgId: string, checkpointId: string): Promise<Checkpoint | undefined> {
    // The start from it throws a later failure.
    const settled = this.#deps.sandboxes.checkpoints.usable(orgId, checkpointId)
    const checkpoint = await withTimeout(checkpointCheckMs, settled)
    if (checkpoint?.status === 'failed') throw new ServiceError('conflict', `checkpoint ${checkpointId} has failed`)
    return checkpoint
  }
}
