export { acting, actingAsServer, whoActs, type Acting } from './cause.ts'
export {
  defaultLogLimits,
  nameOf,
  type EventLog,
  type LogEntry,
  type LogEvent,
  type LogFilter,
  type LogLimits,
  type LogPage,
} from './log.ts'
export { LogStreams, type LogBatch } from './log-stream.ts'
export type { LogActor, LogCause, LogEventType } from '../protocol/log-events.ts'

/** Something has changed. Listeners get the ids and read the store for the state. */
export type ServiceEvent =
  | { type: 'sandbox_changed'; sandboxId: string; status: string; reason?: string }
  /** `output` is the end of the script's output, both streams. */
  | { type: 'patch_applied'; sandboxId: string; patchId: string; sequence: number; exitCode: number; output: string }
  | { type: 'session_changed'; sessionId: string; lastSequence: number }
  /** The agent has written more of an answer that begins after the event of that number. Kept nowhere: a lost one is only not seen. */
  | { type: 'answer_drafted'; sessionId: string; afterSequence: number; offset: number; text: string }
  /** The log of an organisation has grown. */
  | { type: 'log_grew'; orgId: string }

/**
 * Notifies subscribers of changes. Delivery is at most once: a subscriber reads the store for the state, so a lost event costs delay
 * and never data. `publish` never throws and never waits for subscribers. `in-process-bus.ts` is the bus of a single server.
 */
export interface EventBus {
  publish(event: ServiceEvent): void
  /** Events of one topic (the id of a sandbox, a session or, for its log, an organisation), or all events with `*`. Returns a function that ends the subscription. */
  subscribe(topic: string, listener: (event: ServiceEvent) => void): () => void
  close(): Promise<void>
}
