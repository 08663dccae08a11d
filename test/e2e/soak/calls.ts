import { setTimeout as sleep } from 'node:timers/promises'
import { exchange } from '../../support/api-client.ts'
import type { AtollServer } from '../server.ts'
import type { SandboxModel } from './sandbox.ts'
import type { World } from './client.ts'

/** The service itself waits up to thirty seconds for a wake, so a longer call hangs. */
const answerMsMax = 45_000
const retryMs = 100
/** Longer than any restart of the server takes. */
const retriesMax = 1200

export interface Answer {
  status: number
  /** Of the sandbox API's error; empty without one. */
  code: string
  text: string
  /** Of JSON, else undefined. */
  body: unknown
}

export interface CallOptions {
  body?: unknown
  raw?: Buffer
  /** Codes that this call may answer beside those of any call on the sandbox; evaluated after the answer. */
  allow?: readonly string[] | (() => readonly string[])
  /** For requests to a preview. */
  host?: string
  headers?: Record<string, string>
}

/** The reasons for which a call may fail. They cover its whole duration: made before the call, asked after it. */
export class Excuses {
  readonly #world: World
  readonly #sandbox: SandboxModel | undefined
  readonly #wasDown: () => boolean
  readonly #wasCut: () => boolean
  readonly #wasKilled: () => boolean
  readonly #wasDeleted: boolean

  constructor(world: World, sandbox: SandboxModel | undefined) {
    this.#world = world
    this.#sandbox = sandbox
    this.#wasDown = world.down.watch()
    this.#wasCut = sandbox?.cuts.watch() ?? (() => false)
    this.#wasKilled = sandbox?.kills.watch() ?? (() => false)
    this.#wasDeleted = sandbox?.deletion === 'done'
  }

  /** Whether the connection may break. */
  get forBreak(): boolean {
    return this.#wasDown()
  }

  /** Whether what ran in the sandbox may have been cut off. */
  get forCut(): boolean {
    return this.#wasDown() || this.#wasCut() || (this.#sandbox !== undefined && !this.#sandbox.isUsable)
  }

  /** What is wrong with an answer; undefined for nothing. */
  fault(what: string, { status, code, text }: Answer, allow: readonly string[]): string | undefined {
    const said = `${what}: ${status} ${text.slice(0, 500)}`
    if (status < 400) return this.#wasDeleted && !allow.includes('stopped') ? `${said} after the deletion` : undefined
    if (allow.includes(code)) return undefined
    if (code === 'unavailable' && this.forCut) return undefined
    if (code === 'conflict' && (this.#sandbox?.wasKilled === true || this.#wasKilled())) return undefined
    // A process that is just being restored can be killed too.
    if (code === 'full_checkpoint_unavailable' && this.#wasKilled()) return undefined
    if (code === 'sandbox_stopped' && this.#sandbox !== undefined && this.#sandbox.deletion !== 'none') return undefined
    return said
  }

  async report(text: string): Promise<void> {
    // A connection breaks at once, and the interval that excuses it may be reported a moment later.
    await sleep(0)
    this.#world.violated(text, this.#sandbox)
  }
}

/** One call; undefined when the server may or may not have acted on it. An answer without an excuse is a violation. */
export async function call(
  world: World,
  sandbox: SandboxModel | undefined,
  method: string,
  path: string,
  options: CallOptions = {},
): Promise<Answer | undefined> {
  const what = `${method} ${options.host ?? ''}${path}`
  const excuses = new Excuses(world, sandbox)
  sandbox?.note(`> ${what} ${options.body === undefined ? '' : JSON.stringify(options.body).slice(0, 200)}`)
  const began = Date.now()
  let answer: Answer
  try {
    answer = await send(world.server, method, path, options)
  } catch (error) {
    sandbox?.note(`< ${what} broke after ${Date.now() - began} ms: ${String(error)}`)
    if (Date.now() - began >= answerMsMax) await excuses.report(`${what} did not answer in ${answerMsMax} ms`)
    else if (!excuses.forBreak) await excuses.report(`${what} broke: ${String(error)}`)
    else await sleep(50)
    return undefined
  }
  sandbox?.note(`< ${what} ${answer.status} ${answer.text.slice(0, 200)} (${Date.now() - began} ms)`)
  world.count(`${answer.status} ${answer.code}`)
  const { allow = [] } = options
  const fault = excuses.fault(what, answer, typeof allow === 'function' ? allow() : allow)
  if (fault !== undefined) await excuses.report(fault)
  return answer
}

/** One call without excuses; undefined when the connection failed or broke, so that the server may or may not have acted on it. */
export async function tryCall(
  server: AtollServer,
  method: string,
  path: string,
  body?: unknown,
): Promise<Answer | undefined> {
  return await send(server, method, path, { body }).catch(() => undefined)
}

/** Repeats a call that is safe to repeat until it is answered with one of these statuses. */
export async function callUntil(
  server: AtollServer,
  statuses: readonly number[],
  method: string,
  path: string,
  body?: unknown,
): Promise<Answer> {
  let last: Answer | undefined
  for (let retry = 0; retry < retriesMax; retry += 1) {
    const answer = await tryCall(server, method, path, body)
    if (answer && statuses.includes(answer.status)) return answer
    // The server is away or has just come back. Any other answer is a fault.
    if (answer && answer.status !== 503) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
    last = answer ?? last
    await sleep(retryMs)
  }
  throw new Error(`${method} ${path} does not answer: ${JSON.stringify(last)}`)
}

async function send(server: AtollServer, method: string, path: string, options: CallOptions): Promise<Answer> {
  const { body, raw, host, headers } = options
  const answer = await exchange(server.url + path, {
    method,
    signal: AbortSignal.timeout(answerMsMax),
    headers: {
      ...(host === undefined ? { 'X-API-Key': server.key, 'Content-Type': 'application/json' } : { Host: host }),
      ...headers,
    },
    payload: raw ?? (body === undefined ? undefined : JSON.stringify(body)),
  })
  const { code = '' } = (answer.body ?? {}) as { code?: string }
  return { status: answer.status, code, text: answer.text, body: answer.body as unknown }
}
