import type { SandboxService } from '../sandbox/index.ts'
import { previewPort, type SessionTimings } from './config.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import type { Ledger } from './repository.ts'
import { PreviewWatch } from './preview-watch.ts'
import { detectFramework, inspectionMs } from './project.ts'

/** What an agent makes in its sandbox, as far as clients are told: what it is built with, and when its preview answers. */
export class ProjectWatch {
  readonly #sandboxes: SandboxService
  readonly #ledger: Ledger
  readonly #orgId: string
  readonly #preview: PreviewWatch

  constructor(deps: { sandboxes: SandboxService; timings: SessionTimings }, ledger: Ledger, orgId: string) {
    this.#sandboxes = deps.sandboxes
    this.#ledger = ledger
    this.#orgId = orgId
    this.#preview = new PreviewWatch(deps.timings.previewPollMs, () => this.#lookForPreview())
  }

  /** Looks for the preview for a while. */
  watch(): void {
    this.#preview.watch()
  }

  pause(): void {
    this.#preview.pause()
  }

  stop(): void {
    this.#preview.stop()
  }

  /** Looks at what a turn has left in the sandbox; what it is built with, if that is known in time. */
  async inspect(): Promise<string | undefined> {
    const [framework] = await Promise.all([this.#framework(), withTimeout(inspectionMs, this.#preview.lookNow())])
    return framework
  }

  async #framework(): Promise<string | undefined> {
    const { session } = await this.#ledger.read()
    const { sandboxId, agentConfig } = session
    const { files } = this.#sandboxes
    return await detectFramework({ files, orgId: this.#orgId, sandboxId, cwd: agentConfig.cwd })
  }

  /** Records that the preview answers, once; true when that is done. */
  async #lookForPreview(): Promise<boolean> {
    const { session, previewReady } = await this.#ledger.read()
    if (previewReady || session.status === 'ended') return true
    const ports = await this.#sandboxes.exec.ports(this.#orgId, session.sandboxId)
    if (!ports.includes(previewPort)) return false
    return await this.#ledger.write((draft) => {
      // It may have taken so long that the session has another one.
      if (draft.progress.session.sandboxId !== session.sandboxId) return false
      if (!draft.progress.previewReady) draft.note('preview_ready', 'info', 'The preview answers.')
      return true
    })
  }
}
