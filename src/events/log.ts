import type { LogActor, LogCause, LogEventData, LogEventType } from '../protocol/log-events.ts'

/** An event before the store adds its number, its time, the organisation, who acts, and the tags of its sandbox. */
export type LogEntry = { [Type in LogEventType]: EntryOf<Type> }[LogEventType]

interface EntryOf<Type extends LogEventType> {
  type: Type
  /** Id of what has changed. */
  subject: string
  sandboxId?: string
  sessionId?: string
  data: LogEventData<Type>
}

/** A row of the log of an organisation. */
export interface LogEvent {
  /** From 1 on, without gaps, in the order of the commits. */
  number: number
  ts: Date
  orgId: string
  type: LogEventType
  sandboxId?: string
  sessionId?: string
  subject: string
  actor: LogActor
  cause: LogCause
  data: Record<string, unknown>
}

/** Selects the events that match all fields. */
export interface LogFilter {
  types?: readonly LogEventType[]
  sandboxId?: string
  sessionId?: string
  /** A tag of its sandbox when the event was written; any value if absent. */
  tag?: { key: string; value?: string }
}

export interface LogPage {
  events: LogEvent[]
  /** The last number that was looked at: the next page begins after it. */
  next: number
  /** The newest number of the organisation; 0 when there is none. */
  newest: number
  /** The oldest kept number; one above `newest` when there is none. */
  oldest: number
}

/**
 * The port to the log. It has no method that writes: the other ports write the event with the change. A number is visible only when all
 * lower ones are, whatever commits run.
 */
export interface EventLog {
  /** Reads at most `limit` events above `after`, in order. Looks at a bounded number of rows, so it may return none before the end. */
  page(orgId: string, query: { after: number; limit: number; filter: LogFilter }): Promise<LogPage>
  /** Deletes events from before `before`, and those beyond the newest `rowsMax` of each organisation, oldest first. Returns how many. */
  purge(before: Date, rowsMax: number): Promise<number>
}

/** Bounds of the log (`ATOLL_LIMITS`). */
export interface LogLimits {
  /** Events of one organisation. Once an hour the oldest beyond that are deleted. */
  eventsMax: number
  /** How long an event is kept. */
  eventDays: number
}

export const defaultLogLimits: LogLimits = { eventsMax: 200_000, eventDays: 30 }

/** Types that come once in the life of their subject: their events have no number in the name. */
const unnumbered: ReadonlySet<LogEventType> = new Set<LogEventType>([
  'sandbox.created',
  'sandbox.ready',
  'sandbox.stopped',
  'sandbox.forked',
])

/** The name of an event, the same at each read. */
export function nameOf({ number, type, sandboxId, subject }: LogEvent): string {
  if (type === 'sandbox.checkpoint.created') return `${sandboxId}:${type}:${subject}`
  return unnumbered.has(type) ? `${subject}:${type}` : `${subject}:${type}:${number}`
}
