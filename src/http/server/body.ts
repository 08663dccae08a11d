import type { IncomingMessage } from 'node:http'
import { setImmediate as nextRound } from 'node:timers/promises'
import type { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { BodyBudget, readBody as holdBody } from '../../lib/held-body.ts'
import type { BodyShare } from '../../lib/held-body.ts'
import { passedBound } from '../../lib/json-bounds.ts'
import type { JsonBounds } from '../../lib/json-bounds.ts'
import type { HttpLimits } from './config.ts'

/** A body that is checked before use must arrive whole within this time. */
const bodyMs = 60_000
/** Bodies of one organisation that are on their way at one time, or two of the largest. */
const organisationBytesMax = 32 * 1024 * 1024
/** So many organisations may have all of theirs at one time. */
const fullOrganisationsMax = 4
/** Headers may be larger: bodies up to this size are taken whatever others send. */
const smallBodyBytes = 16 * 1024
/** Many times what any request has; as many take some ten milliseconds to parse and check. */
const jsonBounds: JsonBounds = { valuesMax: 10_000, depthMax: 100 }
/** What is told back of what a client sent is a part that a person can read. */
const messageCharactersMax = 300
const longBodyBytes = 1024 * 1024
const decoder = new TextDecoder('utf-8', { fatal: true })

/** Where bodies are held from their first byte until they are parsed. */
export function bodyBudget({ bodyBytesMax, sessionBodyBytesMax }: HttpLimits): BodyBudget {
  const ownerBytesMax = Math.max(organisationBytesMax, 2 * Math.max(bodyBytesMax, sessionBodyBytesMax))
  return new BodyBudget(fullOrganisationsMax * ownerBytesMax, { ownerBytesMax, freeBytes: smallBodyBytes })
}

/** Reads a body into its share. Throws `too_large`, `unavailable`, and `invalid_request` when it breaks off or drips too slowly. */
export async function readBody(request: IncomingMessage, bytesMax: number, share: BodyShare): Promise<Buffer> {
  const timer = setTimeout(() => request.destroy(new Error('the body took too long')), bodyMs)
  const refuse = (why: 'too_large' | 'no_room') =>
    why === 'too_large'
      ? new ServiceError('too_large', `the body is larger than ${bytesMax} bytes`)
      : new ServiceError('unavailable', 'too many large requests at the same time')
  try {
    return await holdBody(request, { bytesMax, share, refuse })
  } catch (error) {
    if (error instanceof ServiceError) throw error
    throw new ServiceError('invalid_request', 'the body broke off', { cause: error })
  } finally {
    clearTimeout(timer)
  }
}

/**
 * No body at all is `{}`: the SDK sends a JSON content type without one. Throws `too_large` and `invalid_request`, the former
 * before any value is made.
 */
export async function parseJson(body: Buffer): Promise<unknown> {
  if (body.length === 0) return {}
  const passed = await passedBound(body, jsonBounds)
  if (passed === 'valuesMax')
    throw new ServiceError('too_large', `the body has more than ${jsonBounds.valuesMax} values`)
  if (passed === 'depthMax') {
    throw new ServiceError('too_large', `the body is nested deeper than ${jsonBounds.depthMax} levels`)
  }
  let value: unknown
  try {
    const text = decoder.decode(body)
    // Each of the two takes long enough for the largest bodies.
    if (body.length > longBodyBytes) await nextRound()
    value = JSON.parse(text)
  } catch (error) {
    throw new ServiceError('invalid_request', 'the body is not valid JSON', { cause: error })
  }
  refuseProto(value)
  return value
}

/** The schemas would drop this key without a word, and objects made from others would lose it. */
const badKey = '__proto__'

function refuseProto(body: unknown): void {
  // No schema of a body takes an array.
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return
  const field = Object.hasOwn(body, badKey) ? badKey : Object.entries(body).find(([, value]) => holdsProto(value))?.[0]
  if (field === undefined) return
  throw new ServiceError('invalid_request', `${field}: no key may be ${badKey}`, { details: { field } })
}

/** Not by recursion: JSON may be nested deeper than the stack. */
function holdsProto(value: unknown): boolean {
  const open = [value]
  while (open.length > 0) {
    const next = open.pop()
    if (typeof next !== 'object' || next === null) continue
    if (Object.hasOwn(next, badKey)) return true
    for (const inner of Array.isArray(next) ? (next as unknown[]) : Object.values(next)) {
      if (typeof inner === 'object' && inner !== null) open.push(inner)
    }
  }
  return false
}

/** Throws `invalid_request` that names the first field at fault. */
export function check(schema: z.ZodType, value: unknown, where: 'body' | 'query' | 'headers'): unknown {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const [issue] = result.error.issues
  const field = shortened(issue === undefined ? '' : issue.path.map(String).join('.'))
  const message = shortened(issue?.message ?? 'invalid')
  throw new ServiceError('invalid_request', `${field === '' ? where : field}: ${message}`, {
    details: field === '' ? {} : { field },
  })
}

function shortened(text: string): string {
  return text.length <= messageCharactersMax ? text : `${text.slice(0, messageCharactersMax)}…`
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
