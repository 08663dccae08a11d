import type { IncomingMessage } from 'node:http'
import { ServiceError } from '../errors.ts'
import { BodyBudget, readBody as holdBody, type BodyShare } from '../lib/body-budget.ts'
import type { GatewayLimits } from './limits.ts'
import type { GatewayIdentity } from './session-meter.ts'

/** Bodies up to this size are always accepted. */
const smallBodyBytes = 64 * 1024
/** How many organisations, and how many sessions, can use their full share at the same time. */
const fullOrganisationsMax = 2
const fullSessionsMax = 4

/** Bounds the bodies in memory: in total, per organisation, and per session. */
export class RequestBodies {
  readonly #bytesMax: number
  readonly #byOrganisation: BodyBudget
  readonly #bySession: BodyBudget

  constructor({ bodyBytesMax, heldBytesMax }: GatewayLimits) {
    const budget = (fullOwnersMax: number) =>
      new BodyBudget(heldBytesMax, { ownerBytesMax: heldBytesMax / fullOwnersMax, freeBytes: smallBodyBytes })
    this.#bytesMax = bodyBytesMax
    this.#byOrganisation = budget(fullOrganisationsMax)
    this.#bySession = budget(fullSessionsMax)
  }

  /** The share of one body, until it is disposed. */
  open({ orgId, sessionId }: GatewayIdentity): BodyShare {
    const shares = [this.#byOrganisation.open(orgId), this.#bySession.open(sessionId)]
    return {
      take: (bytes) => shares.every((share) => share.take(bytes)),
      [Symbol.dispose]: () => {
        for (const share of shares) share[Symbol.dispose]()
      },
    }
  }

  /** Reads the whole body, so that it can be sent again after a failure. Throws `too_large` and `no_capacity`. */
  read(request: IncomingMessage, share: BodyShare): Promise<Buffer> {
    const bytesMax = this.#bytesMax
    const refuse = (why: 'too_large' | 'no_room') =>
      why === 'too_large'
        ? new ServiceError('too_large', `The request is larger than ${bytesMax} bytes.`)
        : new ServiceError('no_capacity', 'The gateway holds too many requests.')
    return holdBody(request, { bytesMax, share, refuse })
  }
}
