import { AsyncLocalStorage } from 'node:async_hooks'
import { ServiceError } from '../errors.ts'
import { translated } from './errors.ts'

const running = new AsyncLocalStorage<string>()

/** The call of the store whose statement runs, such as `sessions.commit`. */
export function callName(): string {
  return running.getStore() ?? 'the store'
}

/**
 * The calls in flight of a store. `drain` refuses new calls and waits for those in flight, so that none meets a closed pool.
 */
export class Calls {
  readonly #check: () => void
  #inFlight = 0
  #drained: PromiseWithResolvers<void> | undefined

  /** `check` throws while no call may begin. */
  constructor(check: () => void) {
    this.#check = check
  }

  /** Throws what `check` throws, {@link translated} errors of the database, and `unavailable` once `drain` was called. */
  async run<Result>(name: string, call: () => Promise<Result>): Promise<Result> {
    if (this.#drained !== undefined) throw new ServiceError('unavailable', 'the database is closed')
    this.#check()
    this.#inFlight++
    try {
      return await running.run(name, call)
    } catch (error) {
      throw translated(error)
    } finally {
      this.#inFlight--
      this.#resolveWhenIdle()
    }
  }

  /** The same object with every method behind `run`, under the names of object and method. */
  guard<Port extends object>(name: string, port: Port): Port {
    return new Proxy(port, {
      get: (target, key, receiver): unknown => {
        const value: unknown = Reflect.get(target, key, receiver)
        if (typeof value !== 'function') return value
        return (...parameters: unknown[]) =>
          this.run(`${name}.${String(key)}`, () => Reflect.apply(value, target, parameters) as Promise<unknown>)
      },
    })
  }

  async drain(): Promise<void> {
    this.#drained ??= Promise.withResolvers()
    this.#resolveWhenIdle()
    await this.#drained.promise
  }

  #resolveWhenIdle(): void {
    if (this.#inFlight === 0) this.#drained?.resolve()
  }
}
