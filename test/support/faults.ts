import { ServiceError } from '../../src/errors.ts'
import { errorAnswer } from '../../src/http/server/errors.ts'
import { type Answering, Idempotency, type IdempotencyPort } from '../../src/http/server/idempotency.ts'
import type { Answer } from '../../src/http/server/route.ts'
import type { Creation } from '../../src/lib/creation.ts'
import { newId } from '../../src/lib/id.ts'

/** `after`: the call has happened, and nobody hears of it, as when a connection is lost during a commit. */
export type Mode = 'before' | 'after'

/** The nth call of the ports that it wraps fails. */
export class Fault {
  happened = false
  #left: number
  readonly #mode: Mode

  constructor(at: number, mode: Mode) {
    this.#left = at
    this.#mode = mode
  }

  /** From here on nothing fails. */
  disarm(): void {
    this.#left = 0
  }

  readonly wrap = <Port extends object>(port: Port): Port =>
    new Proxy(port, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name)
        if (typeof value !== 'function') return value
        return async (...parameters: unknown[]): Promise<unknown> => {
          const fails = --this.#left === 0
          if (fails) this.happened = true
          if (fails && this.#mode === 'before') throw lost()
          const result: unknown = await Reflect.apply(value, target, parameters)
          if (fails) throw lost()
          return result
        }
      },
    })
}

/** What the database still does for a server that has ended. */
export class Calls {
  readonly #underWay = new Set<Promise<unknown>>()

  async ended(): Promise<void> {
    await Promise.allSettled(this.#underWay)
  }

  readonly wrap = <Port extends object>(port: Port): Port =>
    new Proxy(port, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name)
        if (typeof value !== 'function') return value
        return (...parameters: unknown[]): unknown => {
          const call = Reflect.apply(value, target, parameters) as Promise<unknown>
          this.#underWay.add(call)
          call.finally(() => this.#underWay.delete(call)).catch(() => undefined)
          return call
        }
      },
    })
}

function lost(): ServiceError {
  return new ServiceError('unavailable', 'the database does not answer')
}

/** A request with an `Idempotency-Key`, as a client repeats it. */
export class Request<Result> {
  readonly orgId: string
  readonly key: string
  readonly #work: (creation: Creation) => Promise<Result>
  readonly #ids: Pick<Answering, 'reserve' | 'release'>

  /** Also to another server than `earlier` was sent to. */
  constructor(
    orgId: string,
    work: (creation: Creation) => Promise<Result>,
    earlier?: { key: string },
    ids: Pick<Answering, 'reserve' | 'release'> = {},
  ) {
    this.orgId = orgId
    this.#ids = ids
    this.key = earlier?.key ?? newId('key_')
    this.#work = work
  }

  async send(idempotency: Idempotency): Promise<Answer & { body: Result }> {
    const request = { orgId: this.orgId, key: this.key, caller: { credential: 'secret' }, hash: 'hash' }
    const answer = await idempotency.once(request, {
      ...this.#ids,
      run: async (creation) => ({ statusCode: 201, body: await this.#work(creation) }),
      failed: (error) => errorAnswer(error, '/api'),
      again: () => Promise.reject(new Error('no answer is large here')),
    })
    return answer as Answer & { body: Result }
  }

  /** Sends it until it is answered; only what may pass makes it come again. */
  async insist(port: IdempotencyPort, attemptsMax = 3): Promise<Answer & { body: Result }> {
    const idempotency = new Idempotency(port)
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.send(idempotency)
      } catch (error) {
        if (attempt === attemptsMax) throw error
      }
    }
  }
}
