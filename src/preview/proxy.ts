import { request as httpRequest } from 'node:http'
import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import type { Log } from '../lib/log.ts'
import type { PreviewTarget } from '../sandbox/index.ts'
import { answerHeaders, framing, hasBody } from './headers.ts'
import { refuse } from './page.ts'
import { wentForCheckpoint } from './pool.ts'
import type { Connections } from './pool.ts'
import { badAnswer, boundInterim, internalError, refusalFor } from './refusals.ts'

/**
 * Methods whose repeat does no harm (RFC 9110 § 9.2.2), so that a kept connection which has died, or one that was cut for a
 * checkpoint, costs nobody a failure.
 */
const repeatable = new Set(['GET', 'HEAD', 'OPTIONS'])

export interface Forward {
  request: IncomingMessage
  response: ServerResponse
  target: PreviewTarget
  /** The address as the sandbox sees it. */
  path: string
  /** Names and values in turn. */
  headers: string[]
  previewHost: string
  connections: Connections
  log: Log
}

/** Carries one request into the sandbox and its answer back, both as they come. */
export function forward(job: Forward, isRepeat = false): void {
  const { request, response, target, connections } = job
  const upstream = httpRequest({
    agent: connections,
    method: request.method,
    path: job.path,
    headers: [...job.headers, ...framing(request)],
    // Read by `Connections`; the type of the options does not know it.
    ...({ target } as object),
  })
  const abort = () => upstream.destroy()
  response.once('close', abort)

  upstream.on('response', (answer) => sendBack(job, upstream, answer))
  boundInterim(upstream)
  // 101 was not asked for.
  upstream.on('upgrade', (_answer, stream) => {
    stream.destroy()
    refuse(request, response, badAnswer)
  })
  upstream.on('error', (error: NodeJS.ErrnoException) => {
    if (response.headersSent || response.destroyed) {
      response.destroy()
      return
    }
    const isLost = upstream.reusedSocket || wentForCheckpoint(upstream.socket)
    if (isLost && !isRepeat && repeatable.has(request.method ?? '') && !hasBody(request)) {
      response.off('close', abort)
      forward(job, true)
      return
    }
    refuseFor(job, error)
  })
  if (hasBody(request)) {
    request.on('error', abort)
    request.pipe(upstream)
  } else {
    upstream.end()
  }
}

function sendBack(
  { request, response, previewHost, log }: Forward,
  upstream: ClientRequest,
  answer: IncomingMessage,
): void {
  try {
    response.writeHead(answer.statusCode ?? 0, answer.statusMessage ?? '', answerHeaders(answer, previewHost))
  } catch (error) {
    // A hostile status or header; Node refuses to send it on.
    log.debug({ err: error }, 'a preview answered with headers that cannot be sent')
    upstream.destroy()
    refuse(request, response, badAnswer)
    return
  }
  // Event streams show their headers before their first event.
  response.flushHeaders()
  answer.on('error', () => response.destroy())
  answer.on('aborted', () => response.destroy())
  answer.pipe(response)
}

function refuseFor({ request, response, target, log }: Forward, error: unknown): void {
  const { code } = error as NodeJS.ErrnoException
  const refusal = refusalFor(error, target.port)
  if (refusal !== undefined) {
    refuse(request, response, refusal)
  } else if (typeof code === 'string' && /^(?:HPE_|ECONN|EPIPE|ERR_STREAM|ERR_HTTP)/.test(code)) {
    refuse(request, response, badAnswer)
  } else {
    log.error({ err: error, sandboxId: target.sandbox.id, port: target.port }, 'a preview request failed')
    refuse(request, response, internalError)
  }
}
