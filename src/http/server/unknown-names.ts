/**
 * Names that a request has and its route does not know. A route of Atoll's own refuses them. A `lenient` one leaves unknown fields at the
 * top of its body and unknown parameters out, and the header `X-Atoll-Ignored` of the answer names them. Objects inside of a body are
 * `z.strictObject` in `protocol/http/`, so both kinds of route refuse unknown fields there (`validation.ts`).
 */
import type { FastifyRequest } from 'fastify'
import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { common } from '../../protocol/http/index.ts'
import { isRecord } from '../../lib/json.ts'
import { nearest } from '../../lib/nearest.ts'
import type { Route } from './route.ts'

export const ignoredHeader = 'X-Atoll-Ignored'

/** Bounds of the header. */
const ignoredNamesMax = 20
const nameLengthMax = 64
const headerLengthMax = 1000
/** Bounds what an error lists of the names that are known. */
const listedNamesMax = 20

/**
 * Checks the names of a request, after its body is parsed and before the schemas are applied. Returns the value of the header, if there is
 * one, and throws `invalid_request`.
 */
export type NameCheck = (request: FastifyRequest) => string | undefined

export function nameCheckOf({ query, furtherParameters, body, token, method, lenient = false }: Route): NameCheck {
  const parameters = namesOf(query ?? common.empty)
  if (token !== undefined) parameters?.add('token')
  const fields = body === 'raw' || method === 'GET' || method === 'HEAD' ? undefined : namesOf(body ?? common.empty)
  return (request) => {
    const given = request.query as Record<string, unknown>
    const unknownParameters = unknownIn(given, parameters).filter((name) => furtherParameters?.test(name) !== true)
    const unknownFields = isRecord(request.body) ? unknownIn(request.body, fields) : []
    if (unknownParameters.length === 0 && unknownFields.length === 0) return undefined
    if (!lenient) {
      const [parameter] = unknownParameters
      if (parameter !== undefined) throw unknownName('parameter', parameter, parameters!)
      throw unknownName('field', unknownFields[0]!, fields!)
    }
    request.query = without(given, unknownParameters)
    if (unknownFields.length > 0) request.body = without(request.body as object, unknownFields)
    return listOf([...unknownParameters, ...unknownFields])
  }
}

/** The names that a schema has; undefined when it takes all names. */
function namesOf(schema: z.ZodType): Set<string> | undefined {
  if (!(schema instanceof z.ZodObject)) return undefined
  const { catchall } = schema.def
  return catchall === undefined || catchall instanceof z.ZodNever ? new Set(Object.keys(schema.shape)) : undefined
}

function unknownIn(given: object, known: ReadonlySet<string> | undefined): string[] {
  return known === undefined ? [] : Object.keys(given).filter((name) => !known.has(name))
}

function without(given: object, names: readonly string[]): Record<string, unknown> {
  const left = new Set(names)
  return Object.fromEntries(Object.entries(given).filter(([name]) => !left.has(name)))
}

/** The value of the header: a client of whatever kind chose the names, so what no name of a field has is escaped. */
function listOf(names: readonly string[]): string {
  const shown = names.slice(0, ignoredNamesMax).map((name) => {
    const text = encodeURIComponent(name.slice(0, nameLengthMax).toWellFormed())
    return name.length > nameLengthMax ? `${text}...` : text || '""'
  })
  const list = [...shown, ...(names.length > ignoredNamesMax ? ['...'] : [])].join(', ')
  // An escape of a character has up to nine.
  return list.length > headerLengthMax ? `${list.slice(0, list.lastIndexOf(', ', headerLengthMax))}, ...` : list
}

function unknownName(kind: 'field' | 'parameter', name: string, known: ReadonlySet<string>): ServiceError {
  const field = name.slice(0, nameLengthMax)
  const message = `${field}: ${unknownText(kind, name, known)}`
  return new ServiceError('invalid_request', message, { details: { field } })
}

/** What an error says of a name that is not known. */
export function unknownText(kind: 'field' | 'parameter', name: string, known: Iterable<string>): string {
  const names = [...known]
  const meant = nearest(name, names)
  if (meant !== undefined) return `there is no such ${kind}; did you mean ${JSON.stringify(meant)}?`
  const list = names.slice(0, listedNamesMax).join(', ')
  return list === '' ? `this request has no ${kind}s` : `there is no such ${kind}, only ${list}`
}
