import type { Log } from '../lib/log.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

const activeWriteMs = 30_000

/** Writes when sandboxes were last active. That is for people to read, so it is written now and then, not at every operation. */
export class ActivityNotes {
  readonly #store: SandboxStore
  readonly #log: Log
  readonly #writtenMs = new Map<string, number>()

  constructor(store: SandboxStore, log: Log) {
    this.#store = store
    this.#log = log
  }

  note(sandboxId: string): void {
    const now = Date.now()
    if (now - (this.#writtenMs.get(sandboxId) ?? 0) < activeWriteMs) return
    this.#writtenMs.set(sandboxId, now)
    this.#store.updateSandbox(sandboxId, { activeAt: new Date(now) }, ['running']).catch((error: unknown) => {
      this.#log.warn({ err: error, sandboxId }, 'the last activity of a sandbox could not be written')
    })
  }

  forget(sandboxId: string): void {
    this.#writtenMs.delete(sandboxId)
  }
}
