import { request as httpRequest, type ClientRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Log } from '../lib/log.ts'
import type { PreviewTarget } from '../sandbox/index.ts'
import { answerHeaders, framing, hasBody } from './headers.ts'
import { badAnswer, errorFor, internalError, sendError } from './errors.ts'
import { closedForCheckpoint, type PreviewAgent } from './pool.ts'

/** Safe to repeat (RFC 9110 § 9.2.2) when a kept connection has died or a checkpoint closed it. */
const repeatable = new Set(['GET', 'HEAD', 'OPTIONS'])

export interface Forward {
  request: IncomingMessage
  response: ServerResponse
  target: PreviewTarget
  /** Path and query without credentials. */
  path: string
  /** Name, value, name, value … */
  headers: string[]
  previewHost: string
  agent: PreviewAgent
  log: Log
}

/** Streams one request into the sandbox and its answer back. */
export function forward(job: Forward, isRepeat = false): void {
  const { request, response, target, agent } = job
  const upstream = httpRequest({
    agent,
    method: request.method,
    path: job.path,
    headers: [...job.headers, ...framing(request)],
    // `PreviewAgent` reads it; the type of the options lacks it.
    ...({ target } as object),
  })
  const abort = () => upstream.destroy()
  response.once('close', abort)

  upstream.on('response', (answer) => sendBack(job, upstream, answer))
  limitInterimAnswers(upstream)
  // The request asked for no upgrade.
  upstream.on('upgrade', (_answer, stream) => {
    stream.destroy()
    sendError(request, response, badAnswer)
  })
  upstream.on('error', (error: NodeJS.ErrnoException) => {
    if (response.headersSent || response.destroyed) {
      response.destroy()
      return
    }
    const isLost = upstream.reusedSocket || closedForCheckpoint(upstream.socket)
    if (isLost && !isRepeat && repeatable.has(request.method ?? '') && !hasBody(request)) {
      response.off('close', abort)
      forward(job, true)
      return
    }
    sendErrorFor(job, error)
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
    // Node refuses to send a hostile status or header.
    log.debug({ err: error }, 'a preview answered with headers that cannot be sent')
    upstream.destroy()
    sendError(request, response, badAnswer)
    return
  }
  // Event streams show their headers before their first event. A body that came with its headers goes out with them, in one write.
  setImmediate(() => {
    if (!answer.readableDidRead && !response.writableEnded) response.flushHeaders()
  })
  answer.on('error', () => response.destroy())
  answer.on('aborted', () => response.destroy())
  answer.pipe(response)
}

function sendErrorFor({ request, response, target, log }: Forward, error: unknown): void {
  const { code } = error as NodeJS.ErrnoException
  const known = errorFor(error, target.port)
  if (known !== undefined) {
    sendError(request, response, known)
  } else if (typeof code === 'string' && /^(?:HPE_|ECONN|EPIPE|ERR_STREAM|ERR_HTTP)/.test(code)) {
    sendError(request, response, badAnswer)
  } else {
    log.error({ err: error, sandboxId: target.sandbox.id, port: target.port }, 'a preview request failed')
    sendError(request, response, internalError)
  }
}

/** Bounds the interim answers (such as 103 Early Hints) to one request. They are dropped, but reading them costs. */
const interimAnswersMax = 16

/** Destroys a request that gets too many interim answers. */
export function limitInterimAnswers(upstream: ClientRequest): void {
  let count = 0
  upstream.on('information', () => {
    count++
    if (count === interimAnswersMax + 1) upstream.destroy(new InterimFlood())
  })
}

class InterimFlood extends Error {
  readonly code = 'ERR_HTTP_INTERIM_FLOOD'
}
