import type { SandboxService } from '../sandbox/index.ts'
import { previewPort, type SessionTimings } from './config.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import { detectFramework, inspectionMs } from './project.ts'
import type { Input } from './reducer.ts'
import type { SessionState } from './state.ts'

/** Looks after each call of `watch`; the last `slowLooks` are further apart: one minute in all at one look a second. */
const looksMax = 20
const slowLooks = 10
const slowFactor = 5

interface ProjectSource {
  sandboxes: SandboxService
  timings: SessionTimings
  read(): Promise<SessionState>
  apply(input: Input): Promise<void>
}

/** Finds out what an agent makes in its sandbox: with which framework, and when its preview answers. */
export class ProjectWatch {
  readonly #source: ProjectSource
  readonly preview: PreviewWatch

  constructor(source: ProjectSource) {
    this.#source = source
    this.preview = new PreviewWatch(source.timings.previewPollMs, () => this.#lookForPreview())
  }

  /** Looks at what a turn has left in the sandbox. The framework is undefined when the sandbox does not answer in time. */
  async inspect(): Promise<string | undefined> {
    const { session } = await this.#source.read()
    const { orgId, sandboxId, agentConfig } = session
    const [framework] = await Promise.all([
      detectFramework({ files: this.#source.sandboxes.files, orgId, sandboxId, cwd: agentConfig.cwd }),
      withTimeout(inspectionMs, this.preview.lookNow()),
    ])
    return framework
  }

  /** Records that the preview answers, once. True when nothing is left to look for. */
  async #lookForPreview(): Promise<boolean> {
    const { session, previewReady } = await this.#source.read()
    if (previewReady || session.status === 'ended') return true
    const { orgId, sandboxId } = session
    const ports = await this.#source.sandboxes.exec.ports(orgId, sandboxId)
    if (!ports.includes(previewPort)) return false
    await this.#source.apply({ type: 'preview_ready', sandboxId })
    return (await this.#source.read()).previewReady
  }
}

/**
 * Looks whether the preview answers, for a while after each call of `watch`, until `look` says that this is settled. One look
 * runs at a time.
 */
export class PreviewWatch {
  readonly #pollMs: number
  readonly #look: () => Promise<boolean>
  #timer: NodeJS.Timeout | undefined
  #looksLeft = 0
  #settled = false
  #stopped = false
  #looking = false

  constructor(pollMs: number, look: () => Promise<boolean>) {
    this.#pollMs = pollMs
    this.#look = look
  }

  watch(): void {
    if (this.#stopped) return
    this.#looksLeft = looksMax
    // The session may have another sandbox by now.
    this.#settled = false
    this.#timer ??= this.#arm()
  }

  /** A failure counts as a preview that does not answer yet. */
  async lookNow(): Promise<void> {
    if (this.#stopped || this.#settled || this.#looking) return
    this.#looking = true
    try {
      this.#settled = await this.#look()
    } catch {
      // The next turn looks again.
    } finally {
      this.#looking = false
    }
  }

  /** Until the next `watch`. */
  pause(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#looksLeft = 0
  }

  stop(): void {
    this.#stopped = true
    this.pause()
  }

  #arm(): NodeJS.Timeout {
    const pauseMs = this.#looksLeft > slowLooks ? this.#pollMs : this.#pollMs * slowFactor
    const timer = setTimeout(() => void this.#tick(), pauseMs)
    return timer.unref()
  }

  async #tick(): Promise<void> {
    this.#timer = undefined
    await this.lookNow()
    this.#looksLeft -= 1
    // A `watch` during the look has armed it already.
    if (!this.#settled && this.#looksLeft > 0) this.#timer ??= this.#arm()
  }
}
