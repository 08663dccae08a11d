import type { AgentEvent } from 'atoll-sdk'

export type EventOf<Type extends AgentEvent['type']> = Extract<AgentEvent, { type: Type }>

/** One message and what came of it. Its rows share this object. */
export interface Turn {
  /** Known once the turn is over. */
  messageId?: string
  isOver: boolean
  /** Number of the event that told its end. */
  endEvent?: number
  /** What the last error of the turn said: its result says the same. */
  errorText?: string
  row?: UserRow
}

interface RowOf<Kind extends string> {
  kind: Kind
  /** Unique and the same whenever the event is read. */
  key: string
  /** Number of the event that it was made of. */
  event: number
  /** Raised when the row changes: rows are kept and changed in place. */
  revision: number
  /** What it costs to keep, in characters. */
  weight: number
  turn?: Turn
}

/** The message that began a turn. The stream does not have its text. */
export interface UserRow extends RowOf<'user'> {
  turn: Turn
  /** The turn begins in events that are not held. */
  isCut: boolean
}

export interface TextRow extends RowOf<'text'> {
  text: string
}

/** A call of a tool, and its end once that is told. */
export interface ToolRow extends RowOf<'tool'> {
  callId: string
  tool: string
  /** The JSON of the arguments; absent when the call is not among the events that are held. */
  input?: string
  /** `event` is the number of that which told it. */
  end?: { summary: string; isError: boolean; durationMs: number; event: number }
}

export interface ResultRow extends RowOf<'result'> {
  result: Omit<EventOf<'result'>, 'result'>
  /** Why it did not end well, unless an error has said so. */
  reason: string
}

export interface ErrorRow extends RowOf<'error'> {
  error: EventOf<'error'>
}

export interface CheckpointRow extends RowOf<'checkpoint'> {
  checkpoint: EventOf<'checkpoint_created'>
}

export interface RewoundRow extends RowOf<'rewound'> {
  rewound: EventOf<'rewound'>
}

export interface CapsuleRow extends RowOf<'capsule'> {
  capsule: EventOf<'capsule_created'>
}

/** A fact about the agent's process. */
export interface NoteRow extends RowOf<'note'> {
  text: string
}

export type Row = UserRow | TextRow | ToolRow | ResultRow | ErrorRow | CheckpointRow | RewoundRow | CapsuleRow | NoteRow

export type ToolState = 'running' | 'done' | 'failed' | 'unfinished'

export function toolStateOf({ end, turn }: ToolRow): ToolState {
  if (end !== undefined) return end.isError ? 'failed' : 'done'
  return turn?.isOver === false ? 'running' : 'unfinished'
}
