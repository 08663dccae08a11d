import type { AgentEvent, StreamEvent } from 'atoll-sdk'
import type { EventOf, RewoundRow, Row, ToolRow, Turn, UserRow } from './rows.ts'

/** Errors that are told between two turns. Others are of the turn that follows them, if none is open: its first answer had not come. */
const betweenTurns: ReadonlySet<string> = new Set([
  'checkpoint_failed',
  'messages_cancelled',
  'rewind_failed',
  'configure_failed',
  'no_capacity',
  'rate_limited',
  'unavailable',
  'quota_exceeded',
])

/** Of a row, beside its text. */
const rowWeight = 250

/**
 * Rows of a stretch of a session's stream, without a hole: events above `before` and up to `last`. Events are added behind it, a stretch that ends where
 * it begins is put before it, and its oldest rows can be dropped.
 *
 * A stretch may begin inside a turn. The row of that turn then stands first and is marked as cut, until what comes before it is there.
 */
export class Transcript {
  rows: Row[] = []
  /** Those of the rows that tell of a rewind, oldest first. */
  rewinds: RewoundRow[] = []
  before: number
  last: number
  weight = 0
  /** Messages whose turns have ended among these events. */
  readonly ended = new Set<string>()
  /** The turn that the newest events belong to. */
  turn: Turn | undefined
  /** The turn that the stretch begins in. */
  #head: Turn | undefined
  /** Whether the stretch begins in a turn is not known yet. */
  #isHeadOpen: boolean
  /** Calls without an end. */
  readonly #calls = new Map<string, ToolRow>()
  /** Ends of calls that are not held. */
  readonly #ends = new Map<string, ToolRow>()

  constructor(before: number) {
    this.before = before
    this.last = before
    this.#isHeadOpen = before > 0
  }

  add({ sequence, data }: StreamEvent<AgentEvent>): void {
    if (sequence <= this.last) return
    this.last = sequence
    switch (data.type) {
      case 'assistant':
        return this.#addAnswer(sequence, data)
      case 'tool_use_summary':
        return this.#addEnd(sequence, data)
      case 'result':
        return this.#addResult(sequence, data)
      case 'turn_complete':
        return this.#endTurn(sequence, data.message_id)
      case 'error':
        return this.#addError(sequence, data)
      case 'checkpoint_created':
        this.#isHeadOpen = false
        return this.#push({ ...base('checkpoint', sequence), checkpoint: data })
      case 'rewound':
        return this.#addRewind({ ...base('rewound', sequence), rewound: data })
      case 'capsule_created':
        return this.#push({ ...base('capsule', sequence), capsule: data })
      case 'ready':
        return this.#note(sequence, `The agent starts: ${data.harness} ${data.version}`)
      case 'configured':
        return this.#note(sequence, `The agent is ready with model ${data.model}, in ${data.cwd}`)
      default:
        // A newer server may say more.
        return undefined
    }
  }

  /** Puts an older stretch before this one. It must end where this one begins, and is not used any more. */
  prepend(older: Transcript): void {
    if (older.turn !== undefined) this.#joinTurn(older.turn)
    else if (!older.#isHeadOpen && this.#head?.row !== undefined) {
      this.#head.row.isCut = false
      this.#head.row.revision += 1
    }
    this.#joinCalls(older)
    this.rows = [...older.rows, ...this.rows]
    this.rewinds = [...older.rewinds, ...this.rewinds]
    for (const id of older.ended) this.ended.add(id)
    this.weight += older.weight
    this.before = older.before
    if (older.#isHeadOpen) return
    this.#head = older.#head
    this.#isHeadOpen = false
  }

  /** Drops the oldest rows until the rest weighs no more than that. */
  dropTo(weightMax: number): void {
    let count = 0
    let weight = this.weight
    for (const row of this.rows) {
      if (weight <= weightMax) break
      weight -= row.weight
      count += 1
    }
    // Rows of one event go together.
    while (count > 0 && this.rows[count]?.event === this.rows[count - 1]?.event) count += 1
    if (count === 0) return
    const dropped = this.rows.splice(0, count)
    // The row of a turn that was cut before has the number of an event that is not kept.
    this.before = Math.max(this.before, dropped.at(-1)?.event ?? 0)
    for (const row of dropped) {
      this.weight -= row.weight
      if (row.kind !== 'tool') continue
      this.#calls.delete(row.callId)
      // The call may be read again without its end, which lies in what is kept.
      if (row.end !== undefined && row.end.event > this.before) this.#ends.set(row.callId, row)
      else this.#ends.delete(row.callId)
    }
    this.rewinds = this.rewinds.filter(({ event }) => event > this.before)
    this.#isHeadOpen = false
    const turn = dropped.at(-1)?.turn
    this.#head = turn !== undefined && (turn.endEvent ?? this.last + 1) > this.before ? turn : undefined
    const { row } = this.#head ?? {}
    // Of a turn whose end alone is kept nothing is drawn.
    if (row === undefined || (turn?.isOver === true && this.rows[0]?.turn !== turn)) return
    row.isCut = true
    row.revision += 1
    this.rows.unshift(row)
    this.weight += row.weight
  }

  #push(row: Row): void {
    this.rows.push(row)
    this.weight += row.weight
  }

  #addRewind(row: RewoundRow): void {
    this.#isHeadOpen = false
    this.rewinds.push(row)
    this.#push(row)
  }

  #note(event: number, text: string): void {
    const { turn } = this
    this.#push({ ...base('note', event, text.length), text, ...(turn === undefined ? {} : { turn }) })
  }

  /** The turn of an event that belongs to one. */
  #turnAt(event: number): Turn {
    if (this.turn !== undefined) return this.turn
    const turn: Turn = { isOver: false }
    const row: UserRow = { ...base('user', event), turn, isCut: this.#isHeadOpen }
    turn.row = row
    this.turn = turn
    if (this.#isHeadOpen) this.#head = turn
    this.#isHeadOpen = false
    this.#pushBeforeErrors(row)
    return turn
  }

  /** The errors of a turn that has not said anything yet follow its message. */
  #pushBeforeErrors(row: UserRow): void {
    const isBefore = (one: Row) => one.kind !== 'error' || betweenTurns.has(one.error.code)
    const index = this.rows.findLastIndex(isBefore) + 1
    for (const error of this.rows.slice(index)) error.turn = row.turn
    const last = this.rows.at(-1)
    if (index < this.rows.length && last?.kind === 'error') row.turn.errorText = last.error.message
    this.rows.splice(index, 0, row)
    this.weight += row.weight
  }

  #addAnswer(event: number, { message }: EventOf<'assistant'>): void {
    const turn = this.#turnAt(event)
    for (const [index, block] of message.content.entries()) {
      const key = `${event}.${index}`
      if (block.type === 'text') {
        if (block.text.trim() === '') continue
        this.#push({ ...base('text', event, block.text.length), key, turn, text: block.text })
        continue
      }
      const input = JSON.stringify(block.input)
      const call: ToolRow = {
        ...base('tool', event, input.length),
        ...{ key, turn, callId: block.id, tool: block.name, input },
      }
      this.#calls.set(block.id, call)
      this.#push(call)
    }
  }

  #addEnd(event: number, { tool, tool_use_id: callId, ...rest }: EventOf<'tool_use_summary'>): void {
    const turn = this.#turnAt(event)
    const end = { summary: rest.summary, isError: rest.is_error, durationMs: rest.duration_ms, event }
    const call = this.#calls.get(callId)
    if (call !== undefined) {
      this.#calls.delete(callId)
      call.end = end
      call.revision += 1
      return
    }
    const row: ToolRow = { ...base('tool', event, rest.summary.length), turn, callId, tool, end }
    this.#ends.set(callId, row)
    this.#push(row)
  }

  #addResult(event: number, { result: text, ...result }: EventOf<'result'>): void {
    const turn = this.#turnAt(event)
    const reason = result.subtype === 'error_during_execution' && text !== turn.errorText ? text : ''
    this.#push({ ...base('result', event, reason.length), turn, result, reason })
  }

  #addError(event: number, error: EventOf<'error'>): void {
    const { turn } = this
    if (turn !== undefined) turn.errorText = error.message
    this.#push({ ...base('error', event, error.message.length), error, ...(turn === undefined ? {} : { turn }) })
  }

  #endTurn(event: number, messageId: string): void {
    const turn = this.turn ?? { isOver: true }
    if (this.turn === undefined && this.#isHeadOpen) this.#head = turn
    this.#isHeadOpen = false
    this.ended.add(messageId)
    turn.messageId = messageId
    turn.endEvent = event
    turn.isOver = true
    if (turn.row !== undefined) turn.row.revision += 1
    // What has no end by now has none.
    for (const call of this.#calls.values()) call.revision += 1
    this.#calls.clear()
    this.turn = undefined
  }

  /** `open` has not ended in the older stretch, so this one begins in it. */
  #joinTurn(open: Turn): void {
    const head = this.#head
    if (head === undefined) {
      if (this.#isHeadOpen) this.turn = open
      else open.isOver = true
      return
    }
    if (head.messageId !== undefined) open.messageId = head.messageId
    if (head.errorText !== undefined) open.errorText = head.errorText
    open.isOver = head.isOver
    if (open.row !== undefined) open.row.revision += 1
    const index = head.row === undefined ? -1 : this.rows.indexOf(head.row)
    const [row] = index === -1 ? [] : this.rows.splice(index, 1)
    this.weight -= row?.weight ?? 0
    for (const one of this.rows) if (one.turn === head) one.turn = open
    if (this.turn === head) this.turn = open
  }

  #joinCalls(older: Transcript): void {
    for (const [callId, call] of older.#calls) {
      const row = this.#ends.get(callId)
      if (row?.end !== undefined) {
        call.end = row.end
        this.#ends.delete(callId)
        const index = this.rows.indexOf(row)
        if (index !== -1) {
          this.rows.splice(index, 1)
          this.weight -= row.weight
        }
      } else if (call.turn?.isOver === false) this.#calls.set(callId, call)
      call.revision += 1
    }
    for (const [callId, row] of older.#ends) this.#ends.set(callId, row)
  }
}

function base<Kind extends Row['kind']>(kind: Kind, event: number, textLength = 0) {
  return { kind, event, key: `${kind}${event}`, revision: 0, weight: rowWeight + textLength }
}
