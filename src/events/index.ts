/** What happened, told to whoever listens in this process or, with a shared bus, in others. */
export type ServiceEvent =
  | { type: 'sandbox_changed'; sandboxId: string; status: string; reason?: string }
  /** `output` is the end of what the script wrote, both streams. */
  | { type: 'patch_applied'; sandboxId: string; patchId: string; sequence: number; exitCode: number; output: string }
  | { type: 'session_changed'; sessionId: string; lastSequence: number }

/**
 * Tells subscribers that something has changed. Delivery is at most once and carries no state: a subscriber reads the store
 * for the truth, so a lost event costs delay and never data. `publish` never throws and never waits for subscribers.
 */
export interface EventBus {
  publish(event: ServiceEvent): void
  /** Events of one topic (a sandbox or session id), or all with `*`. Returns the function that ends the subscription. */
  subscribe(topic: string, listener: (event: ServiceEvent) => void): () => void
  close(): Promise<void>
}
