import type { ComparedFile, DiskRef, TreeComparison } from '../sandbox/index.ts'
import { restingPoint } from './resting-point.ts'
import type { SessionDeps } from './service.ts'
import type { Session } from './session.ts'
import type { Turn, TurnFile, TurnFiles } from './turn.ts'

/** Turns of one organisation that wait. The files of those beyond it stay unknown. */
const waitingMax = 100
/** What is kept of one turn. */
const filesMax = 100
const pathBytesMax = 16 * 1024

interface SavedTurn {
  session: Session
  turnId: string
}

interface TurnFilesContext extends Pick<SessionDeps, 'store' | 'sandboxes' | 'log'> {
  /** Aborts when the server closes. */
  signal: AbortSignal
}

/**
 * Finds out in the background which files a turn has changed, and keeps that with it:
 *
 *     noted ──► waits ──► compared ──► kept
 *                 │           └── failed, or the server closes: the files stay unknown
 *                 └── too many wait ──► dropped: likewise
 *
 * Turns of one organisation are compared one at a time, in their order.
 */
export class TurnFilesRecorder {
  readonly #context: TurnFilesContext
  /** By organisation. */
  readonly #waiting = new Map<string, SavedTurn[]>()
  readonly #working = new Set<Promise<void>>()

  constructor(context: TurnFilesContext) {
    this.#context = context
  }

  /** A checkpoint of this turn was taken. */
  note(session: Session, turnId: string): void {
    const { sandboxes, signal } = this.#context
    if (sandboxes.trees === undefined || signal.aborted) return
    const { orgId } = session
    const waiting = this.#waiting.get(orgId)
    if (waiting !== undefined) {
      waiting.push({ session, turnId })
      if (waiting.length > waitingMax) waiting.shift()
      return
    }
    const queue = [{ session, turnId }]
    this.#waiting.set(orgId, queue)
    const work = this.#work(orgId, queue).finally(() => this.#working.delete(work))
    this.#working.add(work)
  }

  /** Waits for the end of what the signal has aborted. */
  async close(): Promise<void> {
    await Promise.all(this.#working)
  }

  async #work(orgId: string, queue: SavedTurn[]): Promise<void> {
    const { log, signal } = this.#context
    for (let next = queue.shift(); next !== undefined && !signal.aborted; next = queue.shift()) {
      const { session, turnId } = next
      try {
        await this.#record(session, turnId)
      } catch (error) {
        log.debug({ err: error, sessionId: session.id, turnId }, 'the files of a turn are not known')
      }
    }
    this.#waiting.delete(orgId)
  }

  async #record(session: Session, turnId: string): Promise<void> {
    const { store, sandboxes, signal } = this.#context
    const { id, orgId, agentConfig } = session
    const turn = await store.turn(id, turnId)
    const after = await store.pointOfTurn(id, turnId, 'turn')
    if (turn === undefined || after === undefined) return
    const before = await this.#before(session, turn)
    if (before === 'unknown') return
    const options = { folder: agentConfig.cwd, signal }
    const to = { checkpointId: after.checkpointId }
    const from = before === 'empty' ? undefined : before
    const compared = await sandboxes.trees?.compareDisks(orgId, from, to, options)
    if (compared !== undefined) await store.setTurnFiles(id, turnId, kept(compared))
  }

  /** The disk with which a turn began. A new session makes its working folder, which the image need not have. */
  async #before(session: Session, { messageId, parentId, firstEvent }: Turn): Promise<DiskRef | 'empty' | 'unknown'> {
    const { store } = this.#context
    const resting = await restingPoint(store, session.id, firstEvent - 1)
    // Without a point of the turn before, an older one would show the files of both.
    if (resting !== undefined) return resting.turnId === parentId ? refOf(resting.point) : 'unknown'
    if (parentId !== undefined && parentId !== session.forkPoint) return 'unknown'
    const { forkedFrom, forkPoint, checkpointId, forkCheckpointOf } = session
    // Turns of which an older server has written nothing down came before.
    const isFirst = forkedFrom !== undefined || (await store.firstMessage(session.id, 'consumed'))?.id === messageId
    if (!isFirst) return 'unknown'
    // The checkpoint of a fork alone is gone by now.
    if (checkpointId !== undefined && forkCheckpointOf === undefined) return { checkpointId }
    if (forkedFrom === undefined) return 'empty'
    if (forkPoint === undefined) return 'unknown'
    const point = await store.pointOfTurn(forkedFrom, forkPoint)
    return point === undefined ? 'unknown' : refOf(point)
  }
}

function refOf({ checkpointId }: { checkpointId: string }): DiskRef {
  return { checkpointId }
}

function kept({ files, addedLines, removedLines, isCut }: TreeComparison): TurnFiles {
  let bytes = 0
  const first = files
    .slice(0, filesMax)
    .filter(({ path }) => (bytes += Buffer.byteLength(path)) <= pathBytesMax)
    .map(fileOf)
  return { files: first, addedLines, removedLines, isCut: isCut || first.length < files.length }
}

function fileOf({ path, change, isBinary, addedLines, removedLines }: ComparedFile): TurnFile {
  return { path, change, isBinary, addedLines, removedLines }
}
