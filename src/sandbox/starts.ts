import { ServiceError } from '../errors.ts'

/** Creations and wakes under way, the patches that belong to them included, so that a delete need not wait for their end. */
export class Starts {
  readonly #underWay = new Map<string, AbortController>()

  /** Throws `sandbox_stopped` when it was cut off, whatever that made fail. */
  async run<Result>(sandboxId: string, work: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    const start = new AbortController()
    this.#underWay.set(sandboxId, start)
    try {
      return await work(start.signal)
    } catch (error) {
      throw start.signal.aborted ? stoppedMeanwhile(sandboxId, error) : error
    } finally {
      if (this.#underWay.get(sandboxId) === start) this.#underWay.delete(sandboxId)
    }
  }

  cutOff(sandboxId: string): void {
    this.#underWay.get(sandboxId)?.abort()
  }
}

export function stoppedMeanwhile(sandboxId: string, cause?: unknown): ServiceError {
  return new ServiceError('sandbox_stopped', `sandbox ${sandboxId} was deleted while it started`, { cause })
}
