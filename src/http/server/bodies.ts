/**
 * Request bodies. Fastify's own parsers do not fit, for three reasons:
 * - It answers 415 for a missing parser or a malformed `Content-Type`; this API takes JSON under any type.
 * - Its limit bounds one body. Slow clients that send many large ones are bounded by `BodyBudget`, over all requests.
 * - `JSON.parse` of a hostile body blocks the process, so its values are counted first.
 * Routes with a raw body (uploads) read the stream themselves.
 */
import type { IncomingMessage } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { BodyBudget, readBody as readHeld, type BodyShare } from '../../lib/body-budget.ts'
import { TimeSlice } from '../../lib/async/time-slice.ts'
import { isRecord } from '../../lib/json.ts'
import { type JsonBounds, JsonBoundError, parseJson } from '../../lib/json-values.ts'
import type { HttpLimits } from './config.ts'
import { hashOf } from './idempotency.ts'
import { onceClosed } from './once-closed.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Hash of method, path and body, where a body was read and the request has an `Idempotency-Key`. */
    hash?: string
    /** The share of a body that counts until it is answered. */
    kept?: DisposableStack
  }
  interface FastifyContextConfig {
    /** The body's schema. `raw`, and absent as of an unknown address: the parser leaves the body alone. */
    body?: z.ZodType | 'raw'
    /** The body may be an image's manifest. */
    takesManifest?: boolean
    /** Its values are kept while it is handled, in memory, and there may be more of them. */
    takesList?: boolean
  }
}

/** A JSON body must arrive whole within this time. */
const bodyMs = 60_000
/** Bodies of one organisation in memory at one time; at least two of the largest. */
const organisationBytesMax = 32 * 1024 * 1024
/** The total is this many times the bound of one organisation. */
const fullOrganisationsMax = 4
/** The same bound for manifests. */
const manifestOrganisationsMax = 2
/** Bodies up to this size are always accepted; the headers of a request may be larger. */
const smallBodyBytes = 16 * 1024
/** Many times what a request needs. */
const jsonBounds: JsonBounds = { valuesMax: 10_000, depthMax: 100, fieldsMax: 1000 }
/** A manifest has two values for each of its files. */
const manifestBounds: JsonBounds = { ...jsonBounds, valuesMax: 100_000 }
/** A context has up to seven for each of its files. */
const listBounds: JsonBounds = { ...jsonBounds, valuesMax: 1_500_000 }
const byteOrderMark = Buffer.from('\ufeff')

/** Registers the one content type parser. Call it on the root instance. */
export function registerBodies(app: FastifyInstance, limits: HttpLimits): void {
  const others = { budget: bodyBudget(limits), bounds: jsonBounds }
  const manifests = { budget: manifestBudget(limits), bounds: manifestBounds }
  app.removeAllContentTypeParsers()
  app.addHook('onRequest', async (request, reply) => {
    if (request.routeOptions.config.takesList) {
      const kept = (request.kept = new DisposableStack())
      // Also when the client leaves before its answer.
      onceClosed(reply.raw, () => kept.dispose())
    }
    // Without a type Fastify asks the parser for `*`; with a malformed one it would answer 415.
    delete request.raw.headers['content-type']
  })
  app.addContentTypeParser('*', async (request: FastifyRequest, payload: IncomingMessage) => {
    const { config, bodyLimit } = request.routeOptions
    if (config.body === undefined || config.body === 'raw') return undefined
    const { budget, bounds } = config.takesManifest ? manifests : others
    const share = budget.open(request.caller?.organisation.id)
    using cleanup = new DisposableStack()
    // Released before the handler runs, which may take hours.
    cleanup.use(share)
    const raw = await readBody(payload, bodyLimit, share)
    if (request.headers['idempotency-key'] !== undefined) request.hash = await hashOf(request, raw)
    const value = await jsonOf(raw, config.takesList ? listBounds : bounds)
    if (request.kept?.disposed === false) request.kept.use(cleanup.move())
    return value
  })
}

/** Bounds the bodies of all requests from their first byte until they are parsed. */
function bodyBudget({ bodyBytesMax, sessionBodyBytesMax }: HttpLimits): BodyBudget {
  const ownerBytesMax = Math.max(organisationBytesMax, 2 * Math.max(bodyBytesMax, sessionBodyBytesMax))
  return new BodyBudget(fullOrganisationsMax * ownerBytesMax, { ownerBytesMax, freeBytes: smallBodyBytes })
}

/** Manifests have a budget of their own: they are many times larger than other bodies, and neither waits for the other. */
function manifestBudget({ manifestBytesMax }: HttpLimits): BodyBudget {
  const ownerBytesMax = 2 * manifestBytesMax
  return new BodyBudget(manifestOrganisationsMax * ownerBytesMax, { ownerBytesMax, freeBytes: smallBodyBytes })
}

/** Reads a body into its share. Throws `too_large`, `unavailable`, and `invalid_request` when it breaks off or drips too slowly. */
async function readBody(request: IncomingMessage, bytesMax: number, share: BodyShare): Promise<Buffer> {
  const timer = setTimeout(() => request.destroy(new Error('the body took too long')), bodyMs)
  const refuse = (why: 'too_large' | 'no_room') =>
    why === 'too_large'
      ? new ServiceError('too_large', `the body is larger than ${bytesMax} bytes`)
      : new ServiceError('unavailable', 'too many large requests at the same time')
  try {
    return await readHeld(request, { bytesMax, share, refuse })
  } catch (error) {
    if (error instanceof ServiceError) throw error
    throw new ServiceError('invalid_request', 'the body broke off', { cause: error })
  } finally {
    clearTimeout(timer)
  }
}

/** Throws `invalid_request`, and `too_large` before it makes more values than the bounds allow. An empty body is `{}`. */
async function jsonOf(body: Buffer, bounds: JsonBounds): Promise<unknown> {
  if (body.length === 0) return {}
  const isMarked = body.subarray(0, byteOrderMark.length).equals(byteOrderMark)
  let value: unknown
  try {
    value = await parseJson(isMarked ? body.subarray(byteOrderMark.length) : body, bounds)
  } catch (error) {
    if (error instanceof JsonBoundError) {
      const excess = {
        valuesMax: `has more than ${bounds.valuesMax} values`,
        depthMax: `is nested deeper than ${bounds.depthMax} levels`,
        fieldsMax: `has an object with more than ${bounds.fieldsMax} fields`,
      }
      throw new ServiceError('too_large', `the body ${excess[error.bound]}`, { cause: error })
    }
    throw new ServiceError('invalid_request', 'the body is not valid JSON', { cause: error })
  }
  // Fastify's own `null` means that there was no body.
  if (value === null) throw new ServiceError('invalid_request', 'body: must not be null')
  await refuseProto(value)
  return value
}

/** Objects between two looks at the clock. */
const objectsPerLook = 256
/** A schema would drop this key silently. */
const badKey = '__proto__'

async function refuseProto(body: unknown): Promise<void> {
  // No schema of a body takes an array.
  if (!isRecord(body)) return
  const field = Object.hasOwn(body, badKey) ? badKey : await fieldWithProto(body)
  if (field === undefined) return
  throw new ServiceError('invalid_request', `${field}: no key may be ${badKey}`, { details: { field } })
}

async function fieldWithProto(body: Record<string, unknown>): Promise<string | undefined> {
  const slice = new TimeSlice()
  for (const [field, value] of Object.entries(body)) if (await holdsProto(value, slice)) return field
  return undefined
}

/** Not by recursion: JSON may be nested deeper than the stack. */
async function holdsProto(value: unknown, slice: TimeSlice): Promise<boolean> {
  const open = [value]
  for (let seen = 1; open.length > 0; seen += 1) {
    const next = open.pop()
    if (seen % objectsPerLook === 0) await slice.next()
    if (typeof next !== 'object' || next === null) continue
    if (Object.hasOwn(next, badKey)) return true
    for (const inner of Array.isArray(next) ? (next as unknown[]) : Object.values(next)) {
      if (typeof inner === 'object' && inner !== null) open.push(inner)
    }
  }
  return false
}
