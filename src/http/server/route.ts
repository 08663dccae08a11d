import type { FastifyReply, FastifyRequest } from 'fastify'
import type { WebSocket } from 'ws'
import type { z } from 'zod'
import type { ErrorCode } from '../../errors.ts'
import type { Creation } from '../../lib/creation.ts'
import type { Scope } from '../../organisation/scopes.ts'
import { common } from '../../protocol/http/index.ts'
import type { Page } from '../../sandbox/index.ts'
import type { AccessUse } from '../../session/index.ts'
import type { HttpDeps, HttpLimits } from './config.ts'
import type { Dashboard } from './dashboard.ts'
import type { Metrics } from './metrics.ts'
import type { OpenApi } from './openapi.ts'
import type { Streams } from './streams.ts'

/**
 * One endpoint: what clients may send, what it answers, and the code that does it. `openapi.json`, the checks of requests and
 * the routing all come from this value.
 */
export interface Route {
  method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE' | 'PATCH'
  /** Methods that are served alike and that the reference does not list. */
  otherMethods?: readonly string[]
  /** With parameters as `:name`. */
  path: string
  /** The `operationId`: clients that are generated from `openapi.json` name their methods by it. It never changes. */
  id: string
  tag: string
  summary: string
  description?: string
  /**
   * `key`: the API key in a header. `key_or_query`: also as `?api_key=`, for clients that cannot set headers.
   * `operator`: the operator's key alone. `key_or_operator`: either; `caller.isOperator` says which.
   * `signed`: the handler checks a signature. `none`: open to all. `probe`: open and not rate limited.
   */
  auth: 'key' | 'key_or_query' | 'operator' | 'key_or_operator' | 'signed' | 'none' | 'probe'
  /** What a key must be allowed. `any`: what each key is. Of a route without a key it says nothing. */
  scope: Scope | 'any'
  /**
   * `body.name` is that of what the route makes or changes, which a key with a name prefix bounds. Without one `made` gets one, `kept` keeps what
   * it has.
   */
  naming?: 'made' | 'kept'
  /** Shows or changes what the whole organisation has: no key with a name prefix reaches it. */
  ofAll?: boolean
  /** Default: a route that takes a key takes the cookie of a browser that stands for one (`browser-sessions.ts`). */
  takesCookie?: boolean
  /** Without a key, `?token=` of the session in the path opens the route for this use. */
  token?: AccessUse
  /**
   * Takes unknown parameters and fields and names them in `X-Atoll-Ignored`, since OpenComputer's SDK makes this call, or browsers and probes
   * that add parameters. Default: they are refused.
   */
  lenient?: boolean
  query?: z.ZodType
  /** Whether its calls are in the audit. Default: all but GET and HEAD. */
  audited?: boolean
  /** Names of further parameters, which the handler reads itself. */
  furtherParameters?: RegExp
  headers?: z.ZodType
  /** A Zod type is read as JSON. `raw`: the handler reads the request itself. Absent: a body is ignored. */
  body?: z.ZodType | 'raw'
  /** A `raw` body that the reference shows. A schema has its example in `.meta`. */
  bodyExample?: string
  /** Takes an `Idempotency-Key`: the handler passes `creation` to what makes something. */
  creates?: boolean
  /** An id for the `creation` of a request with a key, if one is at hand. Only for a route that creates. */
  reserve?(call: Call): string | undefined
  bodyLimit?: 'sessionBodyBytesMax' | 'manifestBytesMax'
  /** Its body may be a list of a hundred thousand, which is not kept for longer than it takes to answer. */
  takesList?: boolean
  answers: Record<number, AnswerSpec>
  /** Codes beside those that every route of its kind has (`errorsByStatus` in `openapi.ts`). */
  errors?: readonly ErrorCode[]
  /** Runs after authentication and checks. `undefined`: it has answered through `reply` itself. */
  handle(call: Call): Promise<Answer | undefined>
  /** For a WebSocket: runs before the upgrade, may throw, and returns what takes the socket over. */
  upgrade?(call: Call): Promise<(socket: WebSocketLike) => void>
}

/** Errors of operations that wake a hibernated sandbox first. */
export const wakingErrors = [
  'not_found',
  'conflict',
  'memory_not_restorable',
  'sandbox_stopped',
  'patch_failed',
  'no_capacity',
  'disk_full',
  'unavailable',
] as const satisfies readonly ErrorCode[]

export interface AnswerSpec {
  description: string
  /** JSON body. */
  body?: z.ZodType
  /** Media type of a body that is not JSON; with `body`, of the other form. */
  content?: string
  /** Of such a body, as the reference shows it. */
  example?: string
  headers?: Record<string, string>
}

export interface Answer {
  statusCode: number
  /** Sent as JSON. A string is sent as it is and needs a `content-type` header. */
  body?: unknown
  headers?: Record<string, string>
  /** By what an idempotent replay reads a body of sessions again: the id of the session, or what `forksAgain` takes. */
  readAgainBy?: string
}

export type WebSocketLike = WebSocket

export interface Call<Params = Record<string, string>, Query = unknown, Body = unknown> {
  /** Owner of the key; empty on routes without one. */
  orgId: string
  params: Params
  query: Query
  body: Body
  /** Present on a request that `creates` with an `Idempotency-Key`; pass it to the service method that creates. */
  creation: Creation | undefined
  request: FastifyRequest
  reply: FastifyReply
  deps: HttpDeps
  limits: HttpLimits
  streams: Streams
  metrics: Metrics
  openapi: OpenApi
  /** Undefined when it has not been built. */
  dashboard: Dashboard | undefined
}

type PathParams<Path extends string> = Path extends `${string}:${infer Name}/${infer Rest}`
  ? Record<Name, string> & PathParams<`/${Rest}`>
  : Path extends `${string}:${infer Name}`
    ? Record<Name, string>
    : unknown

type Output<Type> = Type extends z.ZodType ? z.output<Type> : undefined

type TypedCall<Path extends string, Query, Body> = Call<PathParams<Path>, Output<Query>, Output<Body>>

/** The scope of a file's routes that say no other; by a noun with verbs, GET and HEAD are `read` and the others `write`. */
type FileScope = Route['scope'] | 'sandbox' | 'session'

function scopeOf(scope: FileScope, method: Route['method']): Route['scope'] {
  if (scope !== 'sandbox' && scope !== 'session') return scope
  return `${scope}:${method === 'GET' || method === 'HEAD' ? 'read' : 'write'}`
}

/** Makes the `route` function of one section of the reference. It types the handler's call by the path and the schemas. */
export function routesOf(tag: string, scope: FileScope) {
  return <
    const Path extends string,
    Query extends z.ZodType | undefined = undefined,
    Body extends z.ZodType | 'raw' | undefined = undefined,
  >(
    method: Route['method'],
    path: Path,
    spec: Omit<
      Route,
      'method' | 'path' | 'tag' | 'auth' | 'scope' | 'query' | 'body' | 'reserve' | 'handle' | 'upgrade'
    > & {
      /** Default: that of the file. */
      tag?: string
      /** Default `key`. */
      auth?: Route['auth']
      /** Default: that of the file. */
      scope?: Route['scope']
      query?: Query
      body?: Body
      reserve?(call: TypedCall<Path, Query, Body>): string | undefined
      upgrade?(call: TypedCall<Path, Query, Body>): Promise<(socket: WebSocketLike) => void>
    } & (
        | { handle(call: TypedCall<Path, Query, Body>): Promise<Answer | undefined> }
        /** In place of `handle`, where the only answer is that of `answers`: returns its body. */
        | { answer(call: TypedCall<Path, Query, Body>): Promise<unknown> }
      ),
  ): Route => {
    const handle =
      'answer' in spec ? { handle: async (call: never) => answerOf(spec.answers, await spec.answer(call)) } : {}
    // Fastify validates params, query and body with these schemas before it calls the handler.
    return { method, path, tag, auth: 'key', scope: scopeOf(scope, method), ...handle, ...spec } as unknown as Route
  }
}

function answerOf(answers: Route['answers'], body: unknown): Answer {
  const [statusCode = 204] = Object.keys(answers).map(Number)
  if (statusCode === 204) return noContent
  return { statusCode, body: answers[statusCode]?.body === common.empty ? {} : body }
}

/** What the reference says of an answer with a page of a list. */
export const nextPageHeader = { 'X-Next-Cursor': 'Value of `cursor` for the next page; absent on the last' }

export function pageAnswer<Item>({ items, nextCursor }: Page<Item>, bodyOf: (item: Item) => unknown): Answer {
  return {
    statusCode: 200,
    body: items.map(bodyOf),
    headers: nextCursor === undefined ? {} : { 'x-next-cursor': nextCursor },
  }
}

export const noContent: Answer = { statusCode: 204 }
