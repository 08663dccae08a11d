import type { FastifyInstance, FastifySchema } from 'fastify'
import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { TimeSlice } from '../../lib/async/time-slice.ts'
import { defined } from '../../lib/defined.ts'
import { firstFault } from '../../lib/first-fault.ts'
import { isRecord } from '../../lib/json.ts'
import { images } from '../../protocol/http/index.ts'
import { plainIssue } from '../../protocol/plain-issue.ts'
import type { Route } from './route.ts'
import { unknownText } from './unknown-names.ts'

/** Ids and names in a path. One of another shape does not exist. */
const idPattern = /^[A-Za-z0-9_.-]{1,128}$/
/** Parameters that take more. */
const patterns: Readonly<Record<string, RegExp>> = {
  // Also `SANDBOX/NAME`, whose slash is escaped in the path.
  checkpointId: /^[A-Za-z0-9_.-]{1,128}(?:\/[A-Za-z0-9_.-]{1,128})?$/,
  // Of an image also `NAME:TAG`.
  name: /^[A-Za-z0-9_.-]{1,128}(?::[A-Za-z0-9_.-]{1,128})?$/,
  // Of a registry, with a port if it has one.
  host: /^[A-Za-z0-9_.:[\]-]{1,260}$/,
}
/** Bounds what an error message repeats of a request. */
const messageCharactersMax = 300

/** Says that a route has parameters; the validator checks them with `idPattern`. */
const params = z.record(z.string(), z.string())

/** The Zod schemas of a route as Fastify takes them. A large body is left to `checkLargeBody`. */
export function schemaOf({ path, query, headers, body, bodyLimit }: Route): FastifySchema {
  return {
    ...(path.includes(':') ? { params } : {}),
    ...defined({ querystring: query, headers }),
    ...(body === undefined || body === 'raw' || bodyLimit !== undefined ? {} : { body }),
  }
}

/** Makes Fastify validate with Zod. A failure is `invalid_request` that names the first field at fault. */
export function validateWithZod(app: FastifyInstance): void {
  app.setValidatorCompiler<z.ZodType>(({ schema, httpPart }) => {
    switch (httpPart) {
      case 'params':
        return (value: Record<string, string>) => {
          const isKnown = (name: string, id: string) => (patterns[name] ?? idPattern).test(id)
          const [, unknown] = Object.entries(value).find(([name, id]) => !isKnown(name, id)) ?? []
          return unknown === undefined
            ? { value }
            : { error: new ServiceError('not_found', `${JSON.stringify(unknown.slice(0, 40))} does not exist`) }
        }
      case 'querystring':
        return (value: Record<string, unknown>) => check(schema, queryValues(value, schema), 'query')
      case 'headers':
        return (value: Record<string, unknown>) => {
          const given = Object.fromEntries(Object.entries(value).filter(([, text]) => text !== ''))
          const result = check(schema, given, 'headers')
          // The other headers stay readable.
          return 'error' in result ? result : { value: { ...value, ...(result.value as object) } }
        }
      case 'body':
      case undefined:
      default:
        // No body at all is `{}`: the SDK sends a JSON content type without one.
        return (value: unknown) => check(schema, value ?? {}, 'body')
    }
  })
}

/** The value of a body that may hold the steps of an image or the files of a context, which are checked one by one: there may be 100 000. */
export async function checkLargeBody({ body: schema, bodyLimit }: Route, given: unknown): Promise<unknown> {
  if (schema === undefined || schema === 'raw' || bodyLimit === undefined) return given
  const body = given ?? {}
  if (schema === images.createContext && isRecord(body) && Array.isArray(body['files'])) {
    const outer = valueOf(check(schema, { ...body, files: [] }, 'body')) as object
    return { ...outer, files: await checkItems(images.contextFile, body['files'], ['files']) }
  }
  const image = isRecord(body) ? body['image'] : undefined
  const steps = isRecord(image) ? image['steps'] : undefined
  if (!Array.isArray(steps)) return valueOf(check(schema, body, 'body'))
  const outer = valueOf(check(schema, { ...body, image: { ...(image as object), steps: [] } }, 'body'))
  const checked = await checkItems(images.step, steps, ['image', 'steps'])
  const { image: without } = outer as { image?: object }
  return without === undefined ? outer : { ...(outer as object), image: { ...without, steps: checked } }
}

async function checkItems(schema: z.ZodType, items: readonly unknown[], place: string[]): Promise<unknown[]> {
  const checked: unknown[] = []
  const slice = new TimeSlice()
  for (const [index, item] of items.entries()) {
    await slice.next()
    checked.push(valueOf(check(schema, item, 'body', [...place, index])))
  }
  return checked
}

/** An unknown field is told with the one that was meant. */
const faults: Parameters<z.ZodType['safeParse']>[1] = {
  ...firstFault,
  error(issue) {
    if (issue.code !== 'unrecognized_keys') return plainIssue(issue)
    const known = issue.inst instanceof z.ZodObject ? Object.keys(issue.inst.shape) : []
    return unknownText('field', issue.keys[0] ?? '', known)
  },
}

function valueOf(result: ReturnType<typeof check>): unknown {
  if ('error' in result) throw result.error
  return result.value
}

function check(
  schema: z.ZodType,
  value: unknown,
  part: string,
  place: readonly (string | number)[] = [],
): { value: unknown } | { error: ServiceError } {
  // Only the first fault is reported. Finding all would take hundreds of times the memory of the body.
  const result = schema.safeParse(value, faults)
  if (result.success) return { value: result.data }
  const [issue] = result.error.issues
  const unknown = issue?.code === 'unrecognized_keys' ? issue.keys.slice(0, 1) : []
  const field = shortened([...place, ...(issue?.path ?? []), ...unknown].map(String).join('.'))
  const message = `${field === '' ? part : field}: ${shortened(issue?.message ?? 'invalid')}`
  return { error: new ServiceError('invalid_request', message, { details: field === '' ? {} : { field } }) }
}

/**
 * All values of a parameter whose schema is a list; of another one that is repeated the first value counts. An empty parameter is absent, except `user_id`: a query for a user without a
 * name must not answer the sessions of all users.
 */
function queryValues(query: Record<string, unknown>, schema: z.ZodType): Record<string, unknown> {
  const values = Object.entries(query).map(([name, value]): [string, unknown] => {
    const all: readonly unknown[] = Array.isArray(value) ? value : [value]
    return [name, isList(schema, name) ? all : all[0]]
  })
  return Object.fromEntries(values.filter(([name, value]) => value !== '' || name === 'user_id'))
}

function isList(schema: z.ZodType, name: string): boolean {
  const field: unknown = schema instanceof z.ZodObject ? schema.shape[name] : undefined
  return (field instanceof z.ZodOptional ? field.unwrap() : field) instanceof z.ZodArray
}

function shortened(text: string): string {
  return text.length <= messageCharactersMax ? text : `${text.slice(0, messageCharactersMax)}…`
}
