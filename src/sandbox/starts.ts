import { ServiceError } from '../errors.ts'

/** Creations and wakes under way, the patches that belong to them included, so that nobody need wait for their end. */
export class Starts {
  readonly #underWay = new Map<string, AbortController>()
  #isClosed = false

  /** Throws the reason when it was cut off, whatever that made fail. */
  async run<Result>(sandboxId: string, work: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    if (this.#isClosed) throw serverStops()
    const start = new AbortController()
    this.#underWay.set(sandboxId, start)
    try {
      return await work(start.signal)
    } catch (error) {
      throw start.signal.aborted ? start.signal.reason : error
    } finally {
      if (this.#underWay.get(sandboxId) === start) this.#underWay.delete(sandboxId)
    }
  }

  /** Because the sandbox is deleted. */
  cutOff(sandboxId: string): void {
    this.#underWay.get(sandboxId)?.abort(stoppedMeanwhile(sandboxId))
  }

  /** Because the server ends; nothing starts any more. */
  cutOffAll(): void {
    this.#isClosed = true
    for (const start of this.#underWay.values()) start.abort(serverStops())
  }
}

export function serverStops(): ServiceError {
  return new ServiceError('unavailable', 'the server stops')
}

export function stoppedMeanwhile(sandboxId: string): ServiceError {
  return new ServiceError('sandbox_stopped', `sandbox ${sandboxId} was deleted while it started`)
}
