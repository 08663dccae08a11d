import type { IncomingMessage } from 'node:http'
import { ServiceError } from '../errors.ts'
import { readBody as holdBody } from '../lib/held-body.ts'
import type { BodyBudget } from '../lib/held-body.ts'
import type { Wire } from './wires.ts'

export interface HeldBody {
  bytes: Buffer
  release(): void
}

/** Reads a whole body: it is sent again when the upstream fails. Throws `too_large` and `no_capacity`. */
export async function readBody(request: IncomingMessage, bytesMax: number, budget: BodyBudget): Promise<HeldBody> {
  const share = budget.open()
  const release = () => share[Symbol.dispose]()
  const refuse = (why: 'too_large' | 'no_room') =>
    why === 'too_large'
      ? new ServiceError('too_large', `The request is larger than ${bytesMax} bytes.`)
      : new ServiceError('no_capacity', 'The gateway holds too many requests.')
  try {
    return { bytes: await holdBody(request, { bytesMax, share, refuse }), release }
  } catch (error) {
    release()
    throw error
  }
}

export interface ModelRequest {
  model: string
  /** What is sent on: written anew, so that no other reader of the body can find another model in it. */
  bytes: Buffer
}

/** The model that a body asks for. Throws `invalid_request`. */
export function modelRequest(wire: Wire, bytes: Buffer): ModelRequest {
  let body: unknown
  try {
    body = JSON.parse(bytes.toString('utf8'))
  } catch {
    throw new ServiceError('invalid_request', 'The body is not JSON.')
  }
  if (typeof body !== 'object' || body === null) throw new ServiceError('invalid_request', 'The body is not an object.')
  const fields = body as Record<string, unknown>
  const model = fields['model']
  if (typeof model !== 'string' || model === '' || model.length > 200) {
    throw new ServiceError('invalid_request', 'model: must be the name of a model.')
  }
  // It is answered at once, and what it costs is told to those who ask for it later, which nobody can do here.
  if (wire.name === 'openai-responses' && fields['background']) {
    throw new ServiceError('invalid_request', 'background: is not served here.')
  }
  try {
    return { model, bytes: Buffer.from(JSON.stringify(withUsage(wire, fields))) }
  } catch {
    // JSON is read at any depth, but written by recursion.
    throw new ServiceError('invalid_request', 'The body is nested too deep.')
  }
}

/** OpenAI's streams tell their usage only to those who ask: the budget depends on it, whatever the client wants. */
function withUsage(wire: Wire, fields: Record<string, unknown>): object {
  if (wire.name !== 'openai-completions' || fields['stream'] !== true) return fields
  const options = fields['stream_options']
  const known = typeof options === 'object' && options !== null ? options : {}
  return { ...fields, stream_options: { ...known, include_usage: true } }
}
