import { ignoreNotFound, isServiceError, ServiceError } from '../errors.ts'
import type { FairYield } from '../lib/async/fair-yield.ts'
import type { Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { NamedPlace } from '../lib/session-place.ts'
import { assertInput, assertName } from '../sandbox/index.ts'
import type { CreateAgentConfig, CreateViewOptions, SessionView } from './api.ts'
import { findSandbox } from './boot.ts'
import type { SessionLimits } from './config.ts'
import { assertNoWriter } from './fork.ts'
import { copyOf, forkOf, wholeConfig } from './forked-session.ts'
import { messagePages } from './history.ts'
import { checkAgentConfig, checkText } from './input.ts'
import type { Ownership } from './ownership.ts'
import { findPlace, type Place } from './place.ts'
import type { SessionPoints } from './points.ts'
import type { SessionRunners } from './runners.ts'
import type { SessionDeps } from './service.ts'
import { type AgentConfig, type Message, type PointProject, type Session, startedEvent } from './session.ts'
import type { SessionHead } from './store.ts'
import type { SessionViews } from './views.ts'

export interface ForkRequest {
  userId: string
  /** Of one fork. */
  name?: string
  /** Default: the present of an idle session. */
  at?: NamedPlace
  /** Default: as many as there are variants, else one. */
  count?: number
  variants?: readonly Variant[]
}

/** How one of several forks differs. */
export interface Variant {
  /** The first message that it gets. */
  message?: string
  agentConfig?: Omit<CreateAgentConfig, 'cwd' | 'harness' | 'skills'>
}

/** Where in its source a fork begins. */
export interface ForkPlace {
  /** The number that was asked for, or that of the newest event of the source then. */
  atEvent: number
  /** What lies above this number, and up to `atEvent`, the fork does not have. */
  afterEvent: number
  isExact: boolean
  checkpointId: string
  /** The message of the last turn that it has. */
  messageId?: string
}

export type ForkResult = { view: SessionView; place: ForkPlace } | { error: unknown }

interface ForksContext extends Pick<SessionDeps, 'store' | 'sandboxes' | 'config' | 'log'> {
  ownership: Ownership
  points: SessionPoints
  runners: SessionRunners
  views: SessionViews
  limits: SessionLimits
  /** Yields between pages of histories. */
  pages: FairYield
  /** Records a session if the organisation may have another one. */
  withRoom: (orgId: string, record: () => Promise<void>) => Promise<void>
  /** The session that an earlier run of the request has made. */
  findMade: (orgId: string, sessionId: string, options: CreateViewOptions) => Promise<SessionView>
  assertNameFree: (orgId: string, name: string | undefined) => Promise<void>
  assertOpen: () => void
}

/** Turns of one branch that a fork can have. */
const turnsMax = 20_000

/** One fork, before it is made. */
interface Draft {
  id: string
  /** An earlier run of the request has made it. */
  isMade: boolean
  creation: Creation | undefined
  name: string | undefined
  /** Absent: that of the source. */
  config: AgentConfig | undefined
  message: string | undefined
}

/** What the forks of one call begin from. */
interface Origin {
  place: ForkPlace
  project: PointProject
  /** What the source had said by then without a turn belongs to it. */
  time: Date
  /** Whether its checkpoint is there. */
  isKept: () => Promise<boolean>
}

/**
 * Sessions that begin where another one stood. All forks of a call start from one checkpoint:
 *
 *     at a place:   a point ──forks recorded──► stays while one of them starts, whatever the policy says
 *     the present:  taken ──forks recorded──► stays while one of them starts ──► removed by `SessionPoints.sweep`
 */
export class Forks {
  readonly #context: ForksContext

  constructor(context: ForksContext) {
    this.#context = context
  }

  /**
   * Makes forks, each with a result of its own, in order. The source is saved once for all, if at all, and goes on. A point inside of a turn counts as
   * the nearest one before, which is told. Throws what would fail all of them: `forbidden` for another user, `not_found` for a point that is not
   * kept, `invalid_request` naming the field; without `at` `conflict` unless the session is idle; `conflict` for a source that writes a volume; and
   * what a checkpoint throws.
   */
  async make(
    orgId: string,
    sessionId: string,
    request: ForkRequest,
    { creation, ...options }: CreateViewOptions = {},
  ): Promise<ForkResult[]> {
    const { ownership, views, assertOpen } = this.#context
    const { userId, at } = request
    // Forks that are made already need no source that can be forked now.
    const isRepeat = creation !== undefined && creation.made.length > 0
    const head = await (at === undefined && !isRepeat
      ? ownership.steerable(orgId, sessionId, userId)
      : ownership.owner(orgId, sessionId, userId))
    assertOpen()
    const source = await ownership.whole(head)
    const drafts = await this.#drafts(source, request, creation)
    // The views of all share the texts of the source, so they take as much memory as one of it.
    return await views.hold(source, options, () => this.#forks(head, source, drafts, at))
  }

  async #drafts(source: Session, request: ForkRequest, creation: Creation | undefined): Promise<Draft[]> {
    const { name, variants = [], count = Math.max(1, variants.length) } = request
    assertInput(variants.length === 0 || variants.length === count, 'count', 'must be the number of variants')
    assertInput(name === undefined || count === 1, 'name', 'is that of one fork')
    const configs = await this.#configs(source, variants)
    const isOne = request.count === undefined && request.variants === undefined
    const drafts = Array.from({ length: count }, (_one, index) => {
      const part = isOne ? creation : creation?.part(index)
      const id = part?.id('session_') ?? newId('session_')
      const isMade = creation?.made.includes(id) ?? false
      const { message } = variants[index] ?? {}
      return { id, isMade, creation: part, name, config: configs[index], message }
    })
    if (name !== undefined && drafts.every(({ isMade }) => !isMade)) {
      assertName(name)
      await this.#context.assertNameFree(source.orgId, name)
    }
    return drafts
  }

  async #forks(
    head: SessionHead,
    source: Session,
    drafts: readonly Draft[],
    at: NamedPlace | undefined,
  ): Promise<ForkResult[]> {
    const { store, sandboxes, runners, points } = this.#context
    const made = drafts.find(({ isMade }) => isMade)
    if (made !== undefined) return await this.#makeAll(source, drafts, await this.#originOf(made.id, source, head, at))
    if (at !== undefined) {
      const origin = this.#originAt(source, await findPlace(store, head, at, 'at'))
      await this.#assertVolumes(source, drafts.length)
      return await this.#makeAll(source, drafts, origin)
    }
    await assertNoWriter(sandboxes, source)
    return await runners.of(head).whileIdle((idle) =>
      // Somebody waits for it, as before a rewind. It is no point: nobody needs it when the forks have started.
      points.take(idle, { origin: 'undo', kind: 'turn' }, (point) => {
        const place = placeOf({ point, isExact: true, event: point.afterEvent })
        const origin = { place, project: point.project, time: point.createdAt, isKept: async () => true }
        return this.#makeAll(source, drafts, origin)
      }),
    )
  }

  async #makeAll(source: Session, drafts: readonly Draft[], origin: Origin): Promise<ForkResult[]> {
    const { points, findMade, log } = this.#context
    const { place } = origin
    const said = drafts.every(({ isMade }) => isMade) ? [] : await this.#said(source, origin)
    const one = async (draft: Draft): Promise<ForkResult> => {
      try {
        const { id, isMade } = draft
        // Without `sent`: this call has room for its views already.
        return {
          view: await (isMade ? findMade(source.orgId, id, {}) : this.#make(source, origin, said, draft)),
          place,
        }
      } catch (error) {
        if (!isServiceError(error)) log.error({ err: error, sessionId: source.id }, 'a fork was not made')
        return { error }
      }
    }
    return await points.whileKept(source.id, () => Promise.all(drafts.map(one)))
  }

  async #make(
    source: Session,
    { place, project, isKept }: Origin,
    said: readonly Message[],
    { id, name, config, message, creation }: Draft,
  ): Promise<SessionView> {
    const { store, runners, views, withRoom } = this.#context
    const { checkpointId, messageId: forkPoint } = place
    const fork: Session = {
      ...forkOf(source, { id, checkpointId, ...defined({ name, forkPoint }) }),
      ...project,
      ...defined({ agentConfig: config }),
    }
    const messages = said.map((one) => copyOf(one))
    if (message !== undefined) {
      const { createdAt } = fork
      messages.push({ id: newId('msg_'), role: 'user', content: message, state: 'queued', createdAt })
    }
    const event = startedEvent(`The session goes on from event ${place.afterEvent} of ${source.id}.`, fork.createdAt)
    const from = config === undefined ? { configOf: source.id } : {}
    await withRoom(fork.orgId, () => store.createSession(fork, messages, event, { ...from, creation }))
    // From here on the checkpoint stays until the fork has started. It may have gone before, with the source.
    if (!(await isKept())) {
      await runners.end(fork)
      throw new ServiceError('not_found', 'the checkpoint is not kept any more')
    }
    runners.start(fork)
    // What the store leaves out of a session is left out here too.
    return views.make(fork, messages, [event])
  }

  /** The whole configuration of each variant that changes it, checked like that of a new session. */
  async #configs(source: Session, variants: readonly Variant[]): Promise<(AgentConfig | undefined)[]> {
    const { store, config, limits } = this.#context
    const isChanged = ({ agentConfig = {} }: Variant) => Object.keys(agentConfig).length > 0
    const base: CreateAgentConfig = variants.some(isChanged) ? await wholeConfig(store, source) : {}
    return variants.map((variant, index) => {
      const { message, agentConfig: change = {} } = variant
      return inField(`variants[${index}].`, () => {
        if (message !== undefined) checkText(message, 'message', limits)
        if (!isChanged(variant)) return undefined
        const envs = { ...base.envs, ...change.envs }
        const { cwd, harness, secretEnvs } = source.agentConfig
        // What the source has it keeps, also when the server offers it no more.
        const models = change.model === undefined ? { models: [base.model ?? ''] } : {}
        const offered = { ...config, ...models, harnesses: [harness] }
        // A fork of a capsule lacks variables that it would have to keep secret.
        const kept = defined({ secretEnvs: secretEnvs?.filter((name) => Object.hasOwn(envs, name)) })
        const checked = checkAgentConfig({ ...base, ...kept, ...change, cwd, envs }, offered, limits)
        const { volumes, secretStore, egress } = source.agentConfig
        return { ...checked, ...defined({ volumes, secretStore, egress }) }
      })
    })
  }

  /** What belongs to the branch of a point, oldest first, and what had no turn by then. */
  async #said({ id }: Session, { place, time }: Origin): Promise<Message[]> {
    const { store, pages } = this.#context
    const branch = new Set(await store.branch(id, place.messageId, turnsMax))
    const said: Message[] = []
    for await (const page of messagePages(store, pages, id, 'all')) {
      for (const message of page) {
        const isSaid = message.state !== 'queued' && message.state !== 'cancelled'
        const isThere = message.turnId === undefined ? message.createdAt <= time : branch.has(message.turnId)
        if (isSaid && isThere) said.push(message)
      }
    }
    return said
  }

  #originAt({ id }: Session, place: Place): Origin {
    const { checkpointId, project, createdAt: time } = place.point
    const isKept = async () => (await this.#context.store.point(id, checkpointId)) !== undefined
    return { place: placeOf(place), project, time, isKept }
  }

  /** What an earlier run of the request has made this fork from. Its point, or its checkpoint, may be gone. */
  async #originOf(forkId: string, source: Session, head: SessionHead, at: NamedPlace | undefined): Promise<Origin> {
    const { store, sandboxes, ownership } = this.#context
    const fork = await ownership.whole({ id: forkId, orgId: source.orgId })
    const { checkpointId = '', forkPoint: messageId, artifacts, framework, createdAt: time } = fork
    const found = at === undefined ? undefined : await findPlace(store, head, at, 'at').catch(ignoreNotFound)
    if (found?.point.checkpointId === checkpointId) return this.#originAt(source, found)
    const turn = messageId === undefined ? undefined : await store.turn(source.id, messageId)
    const event = turn?.lastEvent ?? 0
    const place = { atEvent: event, afterEvent: event, isExact: true, checkpointId, ...defined({ messageId }) }
    const checkpoint = () => sandboxes.checkpoints.usable(source.orgId, checkpointId).catch(ignoreNotFound)
    return { place, project: { artifacts, framework }, time, isKept: async () => (await checkpoint()) !== undefined }
  }

  /** Volumes are those of the present, whatever the point, and one that is written has one writer. */
  async #assertVolumes(source: Session, count: number): Promise<void> {
    const { sandboxes } = this.#context
    const { orgId, agentConfig } = source
    const sandbox = await findSandbox(sandboxes, source)
    if (sandbox !== undefined && sandbox.status !== 'stopped') return await assertNoWriter(sandboxes, source)
    const written = agentConfig.volumes?.find(({ readOnly }) => readOnly !== true)
    if (written === undefined) return
    if (count > 1)
      throw new ServiceError('conflict', `each fork would write volume ${written.name}: fork one at a time`)
    await sandboxes.assertVolumes(orgId, agentConfig.volumes ?? [])
  }
}

function placeOf({ point, isExact, event }: Place): ForkPlace {
  const { checkpointId, afterEvent, turnId: messageId } = point
  return { atEvent: event, afterEvent, isExact, checkpointId, ...defined({ messageId }) }
}

/** Names fields of `agent_config`, and a message, as those of a variant. */
function inField<Result>(prefix: string, check: () => Result): Result {
  try {
    return check()
  } catch (error) {
    const field = isServiceError(error) ? error.details['field'] : undefined
    if (!isServiceError(error) || typeof field !== 'string') throw error
    const named = `${prefix}${field.replace(/^agent_config\./, '')}`
    throw new ServiceError(error.code, error.message.replace(field, named), {
      details: { ...error.details, field: named },
    })
  }
}
