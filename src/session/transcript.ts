import type { FairYield } from '../lib/async/fair-yield.ts'
import { eventText, type Message, type StreamEvent } from './session.ts'
import { messagePages } from './history.ts'
import { rowPageBytes, type SessionHead, type SessionStore } from './store.ts'

/** Turns of one branch that are looked at. */
const branchMax = 20_000
/** Rewinds of the sandbox alone, one after another, that are looked through for the branch. */
const rewindsMax = 1000
const sandboxIds = /\bsb-[a-z0-9]{12,}\b/g
/** Texts that have to be looked at. */
const looksCleaned = /"type": ?"(?:error|capsule_created)"/

type TranscriptStore = Pick<SessionStore, 'turn' | 'turns' | 'branch' | 'rewindBefore' | 'stream'> &
  Parameters<typeof messagePages>[0]

/** The branch of a session that was in force at an event, and how far it had come. */
interface BranchAt {
  turnIds: ReadonlySet<string>
  /** The turn that had not ended then. */
  openTurnId?: string
}

/** What a session had said by an event: its conversation, and its stream. */
export class Transcript {
  readonly #store: TranscriptStore
  readonly #session: Pick<SessionHead, 'id' | 'createdAt'>
  readonly #event: number
  #time: Date | undefined

  constructor(store: TranscriptStore, session: Pick<SessionHead, 'id' | 'createdAt'>, event: number) {
    this.#store = store
    this.#session = session
    this.#event = event
  }

  /**
   * What the user and the agent had said in the branch of then, oldest first. A page ends with the row that reaches `rowPageBytes`; it may hold less
   * than `limit`, even nothing, and still have a next one. Notices of the service are left out.
   */
  async messages({ after, limit }: { after?: string; limit: number }): Promise<{ items: Message[]; next?: string }> {
    const page = { limit, branch: 'all', ...(after === undefined ? {} : { after }) } as const
    const rows = await this.#store.messages(this.#session.id, page)
    const branch = await this.#branch()
    const items: Message[] = []
    for (const row of rows) if (await this.#holds(row, branch)) items.push(row)
    const bytes = rows.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0)
    const last = rows.at(-1)
    const isLast = last === undefined || (rows.length < limit && bytes < rowPageBytes)
    return isLast ? { items } : { items, next: last.id }
  }

  /** All of them, read in pages. */
  async allMessages(pages: FairYield): Promise<Message[]> {
    const branch = await this.#branch()
    const found: Message[] = []
    for await (const page of messagePages(this.#store, pages, this.#session.id, 'all'))
      for (const row of page) if (await this.#holds(row, branch)) found.push(row)
    return found
  }

  /**
   * The stream up to the event, with the left branches, as it is stored. A page ends with the event that reaches `streamPageBytes`. Events that hold
   * a link are left out, and ids of sandboxes in errors are hidden: they lead to previews.
   */
  async events({ after, limit }: { after: number; limit: number }): Promise<{
    items: { id: number; text: string }[]
    next?: number
  }> {
    if (after >= this.#event) return { items: [] }
    const rows = await this.#store.stream(this.#session.id, after, Math.min(limit, this.#event - after))
    const items = rows.flatMap((row) => {
      const text = cleanedText(row)
      return text === undefined ? [] : [{ id: row.sequence, text }]
    })
    const last = rows.at(-1)?.sequence ?? this.#event
    return last < this.#event ? { items, next: last } : { items }
  }

  async #holds(message: Message, { turnIds, openTurnId }: BranchAt): Promise<boolean> {
    const { role, state, turnId, isLeft, createdAt } = message
    if (role === 'system' || state === 'queued' || state === 'cancelled') return false
    // It came with a fork, and names a turn of the source.
    if (createdAt < this.#session.createdAt) return isLeft !== true
    // An answer is that of a finished turn.
    if (turnId !== undefined) return turnIds.has(turnId) && (role === 'user' || turnId !== openTurnId)
    // Of a server that recorded no turns.
    return createdAt <= (await this.#timeOfEvent())
  }

  async #branch(): Promise<BranchAt> {
    const { id } = this.#session
    const head = await this.#headTurn()
    const turnIds = new Set(await this.#store.branch(id, head, branchMax))
    const turn = head === undefined ? undefined : await this.#store.turn(id, head)
    const isOpen = turn !== undefined && (turn.lastEvent === undefined || turn.lastEvent > this.#event)
    return isOpen ? { turnIds, openTurnId: turn.messageId } : { turnIds }
  }

  /** The newest turn of the branch in force: one that had begun since the last rewind of the conversation, or where that went to. */
  async #headTurn(): Promise<string | undefined> {
    const { id } = this.#session
    const [newest] = await this.#store.turns(id, { limit: 1, branch: 'all', begunBy: this.#event })
    let until = this.#event
    for (let looked = 0; looked < rewindsMax; looked += 1) {
      const rewind = await this.#store.rewindBefore(id, until)
      if (newest !== undefined && newest.firstEvent > (rewind?.event ?? 0)) return newest.messageId
      if (rewind === undefined) return undefined
      if (rewind.what !== 'machine') return rewind.turnId
      until = rewind.event - 1
    }
    return undefined
  }

  async #timeOfEvent(): Promise<Date> {
    const time = async () => (await this.#store.stream(this.#session.id, this.#event - 1, 1))[0]?.createdAt
    return (this.#time ??= (await time()) ?? new Date(0))
  }
}

function cleanedText(event: StreamEvent): string | undefined {
  const text = eventText(event)
  if (!looksCleaned.test(text)) return text
  if (event.data.type === 'capsule_created') return undefined
  return event.data.type === 'error' ? text.replaceAll(sandboxIds, 'sb-…') : text
}
