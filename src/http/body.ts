import type { IncomingMessage } from 'node:http'
import type { z } from 'zod'
import { ServiceError } from '../errors.ts'

/** A body that is checked before use must arrive whole within this time. */
const bodyMs = 60_000
/** Bodies that are held in memory at one time, all requests together; parsed they weigh several times as much. */
export const bodiesBytesMax = 128 * 1024 * 1024
const decoder = new TextDecoder('utf-8', { fatal: true })

/** Bounds what all requests hold together. */
export class BodyBudget {
  readonly #bytesMax: number
  #heldBytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /** One request's part, given back when it is disposed of. `take` throws `unavailable` when there is no more. */
  open(): { take: (bytes: number) => void } & Disposable {
    let bytes = 0
    return {
      take: (more) => {
        if (this.#heldBytes + more > this.#bytesMax) {
          throw new ServiceError('unavailable', 'too many large requests at the same time')
        }
        this.#heldBytes += more
        bytes += more
      },
      [Symbol.dispose]: () => {
        this.#heldBytes -= bytes
        bytes = 0
      },
    }
  }
}

/**
 * Reads a body into memory and tells `take` of each part. Throws `too_large` beyond `bytesMax`, `invalid_request` when it
 * breaks off or drips too slowly.
 */
export async function readBody(
  request: IncomingMessage,
  bytesMax: number,
  take: (bytes: number) => void,
): Promise<Buffer> {
  if (Number(request.headers['content-length'] ?? 0) > bytesMax) throw tooLarge(bytesMax)
  const timer = setTimeout(() => request.destroy(new Error('the body took too long')), bodyMs)
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > bytesMax) throw tooLarge(bytesMax)
      take(chunk.length)
      chunks.push(chunk)
    }
  } catch (error) {
    if (error instanceof ServiceError) throw error
    throw new ServiceError('invalid_request', 'the body broke off', { cause: error })
  } finally {
    clearTimeout(timer)
  }
  return Buffer.concat(chunks, bytes)
}

/** No body at all is `{}`: the SDK sends a JSON content type without one. */
export function parseJson(body: Buffer): unknown {
  if (body.length === 0) return {}
  try {
    return JSON.parse(decoder.decode(body))
  } catch (error) {
    throw new ServiceError('invalid_request', 'the body is not valid JSON', { cause: error })
  }
}

/** Throws `invalid_request` that names the first field at fault. */
export function check(schema: z.ZodType, value: unknown, where: 'body' | 'query' | 'headers'): unknown {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const [issue] = result.error.issues
  const field = issue === undefined ? '' : issue.path.map(String).join('.')
  const message = issue?.message ?? 'invalid'
  throw new ServiceError('invalid_request', `${field === '' ? where : field}: ${message}`, {
    details: field === '' ? {} : { field },
  })
}

/** Answers 501 for a field of the OpenComputer API that is not built yet, unless it is empty. */
export function refuseNotBuilt(body: Record<string, unknown>, fields: readonly string[], prefix = ''): void {
  for (const field of fields) {
    if (!isEmpty(body[field])) {
      throw new ServiceError('not_implemented', `${prefix}${field} is not implemented yet`, {
        details: { field: `${prefix}${field}` },
      })
    }
  }
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === false) return true
  return typeof value === 'object' && Object.keys(value).length === 0
}

function tooLarge(bytesMax: number): ServiceError {
  return new ServiceError('too_large', `the body is larger than ${bytesMax} bytes`)
}
