import { ServiceError } from '../errors.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { NamedPlace } from '../lib/session-place.ts'
import type { TreeComparison } from '../sandbox/index.ts'
import { assertSeparable } from './conversation.ts'
import { findPlace } from './place.ts'
import type { Ownership } from './ownership.ts'
import type { SessionPoints } from './points.ts'
import type { SessionRunners } from './runners.ts'
import type { SessionDeps } from './service.ts'
import type { PendingRewind, RewindWhat, Session } from './session.ts'
import type { SessionHead } from './store.ts'
import type { Point } from './turn.ts'

export interface RewindRequest {
  userId: string
  to: NamedPlace
  what: RewindWhat
}

export interface Rewound {
  /** The message that was left, to be edited and sent again. */
  restoredPrompt?: string
  undoCheckpointId: string
  processes: ProcessesAfter
}

/** What becomes of processes: those of the point run again, all have ended, or those of the present run on. */
export type ProcessesAfter = 'restored' | 'ended' | 'kept'

export interface RewindPreview {
  checkpointId: string
  toEvent: number
  /** How files of the working folder would change. Absent where disks cannot be read. */
  files?: TreeComparison
  /** Messages whose turns would be left, newest first, and what those have cost in tokens. */
  turnsLeft: string[]
  tokensLeft: number
  /** Messages that wait would be cancelled. */
  queuedMessages: number
  /** A turn would be interrupted. */
  interrupts: boolean
  processes: ProcessesAfter
  /** Commands of processes that would end. Absent while the sandbox sleeps. */
  processesEnded?: string[]
  restoredPrompt?: string
}

interface RewindsContext extends Pick<SessionDeps, 'store' | 'sandboxes'> {
  ownership: Ownership
  points: SessionPoints
  runners: SessionRunners
  /** Throws while the server shuts down. */
  assertOpen: () => void
}

/** Turns of a branch that are looked at. */
const branchMax = 10_000
const processesMax = 100
const commandLengthMax = 500
/** Programs of the service itself, which are there whatever happens. */
const servicePath = '/.atoll/'

/** Takes sessions back, and forward, to points of theirs, or to where a fork of theirs stands. */
export class Rewinds {
  readonly #context: RewindsContext

  constructor(context: RewindsContext) {
    this.#context = context
  }

  /**
   * Takes a session to a point, after a checkpoint of the present, and returns once it is there. Throws `forbidden` for another user,
   * `not_found` for a point that is not kept, `invalid_request` for an event inside of a turn, `conflict` when the session has ended or
   * another rewind is under way, and what a checkpoint or a restore of its sandbox throws: then the present goes on.
   */
  async rewind(
    orgId: string,
    sessionId: string,
    { userId, to, what }: RewindRequest,
    { creation }: CreateOptions = {},
  ): Promise<Rewound> {
    const session = await this.#context.ownership.steerable(orgId, sessionId, userId)
    const { runners, assertOpen } = this.#context
    assertOpen()
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) return await this.#findMade(session, madeId)
    await this.#findPoint(session, to)
    const rewind = await runners.of(session).rewind(async (held) => {
      if (what !== 'all') assertSeparable(this.#context.sandboxes, held)
      // Its checkpoint may have been removed during the wait.
      const { checkpointId, kind, turnId, afterEvent: toEvent, project } = await this.#findPoint(session, to)
      const { restoredMessageId } = await this.#leaving(held, turnId, what)
      return { what, checkpointId, kind, toEvent, project, ...defined({ turnId, restoredMessageId }) }
    }, creation)
    return await this.#toldOf(sessionId, rewind, rewind)
  }

  /** What a rewind would do. Changes nothing, and wakes nothing. Throws what the rewind would throw before it begins. */
  async preview(orgId: string, sessionId: string, { userId, to, what }: RewindRequest): Promise<RewindPreview> {
    const { ownership, store, sandboxes } = this.#context
    const head = await ownership.steerable(orgId, sessionId, userId)
    const point = await this.#findPoint(head, to)
    const session = await ownership.whole(head)
    if (what !== 'all') assertSeparable(sandboxes, session)
    const { turnsLeft, queued, restoredMessageId } = await this.#leaving(session, point.turnId, what)
    const processes = processesAfter(what, point)
    const files = what === 'conversation' ? undefined : await this.#compare(session, point)
    const processesEnded = processes === 'kept' ? [] : await this.#processes(session)
    return {
      checkpointId: point.checkpointId,
      toEvent: point.afterEvent,
      turnsLeft,
      tokensLeft: await this.#tokensSince(session, turnsLeft.at(-1)),
      queuedMessages: queued.length,
      interrupts: session.activity === 'working' && (await store.firstMessage(sessionId, 'started')) !== undefined,
      processes,
      ...defined({ files, processesEnded, restoredPrompt: await this.#contentOf(sessionId, restoredMessageId) }),
    }
  }

  /**
   * Takes a session to where a fork of it stands, whose turns become turns of its own; the other forks are archived. Throws like `rewind`,
   * `not_found` for a fork that the user does not own, and `conflict` for a session that is no fork of this one, or that is at work.
   */
  async adopt(
    orgId: string,
    sessionId: string,
    { userId, from }: { userId: string; from: string },
    { creation }: CreateOptions = {},
  ): Promise<Rewound> {
    const { ownership, runners, assertOpen } = this.#context
    const session = await ownership.steerable(orgId, sessionId, userId)
    assertOpen()
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) return await this.#findMade(session, madeId)
    const fork = await ownership.owned(orgId, from, userId)
    if (fork.forkedFrom !== sessionId)
      throw new ServiceError('conflict', `${from} is no fork of the session`, { details: { field: 'from' } })
    if (fork.status === 'ended') throw new ServiceError('conflict', `${from} has ended`, { details: { field: 'from' } })
    const rewind = await runners.of(session).rewind(async (held) => await this.#adoption(held, fork), creation)
    return await this.#toldOf(sessionId, rewind, rewind)
  }

  /** Keeps where the fork stands as a point of the session that adopts it. */
  async #adoption(session: Session, fork: SessionHead): Promise<Omit<PendingRewind, 'undoCheckpointId'>> {
    const { runners, points, store } = this.#context
    const { forkPoint: turnId } = fork
    const adoptedTurnId = fork.headTurnId === undefined ? undefined : newId('msg_')
    const point = await runners.of(fork).whileIdle((source) =>
      points.take(source, { origin: 'undo', kind: 'turn' }, async ({ turnId: _turn, ...taken }) => {
        const own = {
          ...taken,
          ...defined({ turnId: adoptedTurnId ?? turnId }),
          afterEvent: await store.lastSequence(session.id),
        }
        const committed = await store.commit(session.id, { when: 'running', addPoint: own })
        if (committed === undefined) throw new ServiceError('conflict', 'the session has ended')
        return own
      }),
    )
    const { checkpointId, kind, project, afterEvent: toEvent } = point
    const restoredMessageId = (await this.#turnsLeft(session, turnId)).at(-1)
    const known = defined({ turnId, adoptedTurnId, restoredMessageId })
    return { what: 'all', checkpointId, kind, toEvent, project, adoptedFrom: fork.id, ...known }
  }

  /** The answer of an earlier run of the request, once what it has decided is carried out. */
  async #findMade(session: SessionHead, undoCheckpointId: string): Promise<Rewound> {
    const { runners, store } = this.#context
    await runners.of(session).rewound()
    const rewind = await store.rewindUndoneBy(session.id, undoCheckpointId)
    if (rewind === undefined) throw new ServiceError('unavailable', 'the rewind was called off')
    const point = await store.point(session.id, rewind.checkpointId)
    return await this.#toldOf(session.id, rewind, { kind: point?.kind ?? 'disk_only' })
  }

  async #toldOf(
    sessionId: string,
    {
      what,
      undoCheckpointId,
      restoredMessageId,
    }: Pick<PendingRewind, 'what' | 'undoCheckpointId' | 'restoredMessageId'>,
    point: Pick<Point, 'kind'>,
  ): Promise<Rewound> {
    const restoredPrompt = await this.#contentOf(sessionId, restoredMessageId)
    return { undoCheckpointId, processes: processesAfter(what, point), ...defined({ restoredPrompt }) }
  }

  async #findPoint(session: SessionHead, to: NamedPlace): Promise<Point> {
    const { point, isExact, event } = await findPlace(this.#context.store, session, to, 'to')
    if (isExact) return point
    const message = `event ${event} lies inside of a turn: the checkpoint before it is after event ${point.afterEvent}`
    throw new ServiceError('invalid_request', `to.event_id: ${message}`, { details: { field: 'to.event_id' } })
  }

  /** What a rewind to this turn takes out of force, and the message that it gives back. */
  async #leaving(session: Session, turnId: string | undefined, what: RewindWhat) {
    const queued = await this.#context.store.queuedMessageIds(session.id)
    if (what === 'machine') return { turnsLeft: [], queued }
    const turnsLeft = await this.#turnsLeft(session, turnId)
    return { turnsLeft, queued, restoredMessageId: turnsLeft.at(-1) ?? queued[0] }
  }

  /** The messages whose turns are in force and would not be after a rewind to this turn, newest first. */
  async #turnsLeft({ id, headTurnId }: Session, turnId: string | undefined): Promise<string[]> {
    const branch = await this.#context.store.branch(id, headTurnId, branchMax)
    if (turnId === undefined) return branch
    const isKept = new Set(await this.#context.store.branch(id, turnId, branchMax))
    return branch.filter((messageId) => !isKept.has(messageId))
  }

  async #contentOf(sessionId: string, messageId: string | undefined): Promise<string | undefined> {
    return messageId === undefined ? undefined : (await this.#context.store.message(sessionId, messageId))?.content
  }

  async #tokensSince(session: Session, messageId: string | undefined): Promise<number> {
    const turn = messageId === undefined ? undefined : await this.#context.store.turn(session.id, messageId)
    if (turn === undefined) return 0
    const { inputTokens, outputTokens } = turn.usageBefore
    return session.inputTokens + session.outputTokens - inputTokens - outputTokens
  }

  async #compare({ orgId, sandboxId, agentConfig }: Session, { checkpointId }: Point) {
    const { trees } = this.#context.sandboxes
    return await trees?.compareDisks(orgId, { sandboxId }, { checkpointId }, { folder: agentConfig.cwd })
  }

  /** Commands of all processes but the agent's; undefined while the sandbox sleeps. */
  async #processes({ orgId, sandboxId }: Session): Promise<string[] | undefined> {
    const { sandboxes } = this.#context
    if ((await sandboxes.get(orgId, sandboxId)).status !== 'running') return undefined
    const all = await sandboxes.inspection.processes(orgId, sandboxId)
    const others = all.filter(({ command }) => !command.includes(servicePath))
    return others.slice(0, processesMax).map(({ command }) => command.slice(0, commandLengthMax))
  }
}

function processesAfter(what: RewindWhat, { kind }: Pick<Point, 'kind'>): ProcessesAfter {
  if (what === 'conversation') return 'kept'
  return kind === 'full' ? 'restored' : 'ended'
}
