import { request as httpRequest, type ClientRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Log } from '../lib/log.ts'
import type { PreviewTarget } from '../sandbox/index.ts'
import { expectation, expectsContinue, framing, hasBody } from './headers.ts'
import { lingerOnClose } from '../lib/linger.ts'
import { TokenBuckets } from '../lib/token-bucket.ts'
import { badAnswer, errorFor, internalError, type PreviewError } from './errors.ts'
import { closedForCheckpoint, type PreviewAgent } from './pool.ts'
import { sendBody } from './request-body.ts'

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
  /** The headers that the client gets of an answer. */
  headersBack: (answer: IncomingMessage) => string[]
  /** Tells the client why there is no answer. `cause` is the error of the dial, where that failed. */
  refuse: (error: PreviewError, cause?: unknown) => void
  agent: PreviewAgent
  log: Log
}

/** Streams one request into the sandbox and its answer back. */
export function forward(job: Forward, isRepeat = false): void {
  const { request, response, target, agent, refuse } = job
  const gone = new AbortController()
  const upstream = httpRequest({
    agent,
    method: request.method,
    path: job.path,
    headers: [...job.headers, ...expectation(request), ...framing(request)],
    // `PreviewAgent` reads them; the type of the options lacks them.
    ...({ target, gone: gone.signal, isFresh: isRepeat } as object),
  })
  // Aborts when the client has left. After a whole answer the connection may still carry the rest of the request.
  const abort = () => {
    if (response.writableFinished) return
    gone.abort()
    upstream.destroy()
  }
  response.once('close', abort)

  let isContinued = !expectsContinue(request)
  upstream.on('response', (answer) => sendBack(job, upstream, answer, isContinued))
  limitInterimAnswers(upstream)
  // The request asked for no upgrade.
  upstream.on('upgrade', (_answer, stream) => {
    stream.destroy()
    refuse(badAnswer)
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
    refuseFor(job, error)
  })
  upstream.on('continue', () => {
    if (isContinued) return
    isContinued = true
    response.writeContinue()
  })
  if (hasBody(request)) sendBody(request, response, upstream)
  else upstream.end()
}

function sendBack(
  { request, response, headersBack, refuse, log }: Forward,
  upstream: ClientRequest,
  answer: IncomingMessage,
  isContinued: boolean,
): void {
  const headers = headersBack(answer)
  // The client may send its body all the same, so the connection cannot carry another request.
  if (!isContinued) headers.push('Connection', 'close')
  try {
    response.writeHead(answer.statusCode ?? 0, answer.statusMessage ?? '', headers)
  } catch (error) {
    // Node refuses to send a hostile status or header.
    log.debug({ err: error }, 'a preview answered with headers that cannot be sent')
    // It keeps the reason that it refuses, and would refuse every later head for it.
    response.statusMessage = ''
    upstream.destroy()
    refuse(badAnswer)
    return
  }
  if (!isContinued) lingerOnClose(request.socket)
  // Event streams show their headers before their first event. A body that came with its headers goes out with them, in one write.
  setImmediate(() => {
    if (!answer.readableDidRead && !response.writableEnded) response.flushHeaders()
  })
  answer.on('error', () => response.destroy())
  answer.on('aborted', () => response.destroy())
  answer.pipe(response)
}

function refuseFor({ refuse, target, log }: Forward, error: unknown): void {
  const { code } = error as NodeJS.ErrnoException
  const known = errorFor(error, target.port)
  if (known !== undefined) {
    refuse(known, error)
  } else if (typeof code === 'string' && /^(?:HPE_|ECONN|EPIPE|ERR_STREAM|ERR_HTTP)/.test(code)) {
    refuse(badAnswer)
  } else {
    log.error({ err: error, sandboxId: target.sandbox.id, port: target.port }, 'a preview request failed')
    refuse(internalError)
  }
}

/**
 * Bounds the interim answers (such as 103 Early Hints) to one request. They are dropped, but reading them costs. Their number alone says
 * nothing: a server may send 102 Processing each second for as long as it works (RFC 2518 § 10.1).
 */
const interimAnswers = { burst: 1000, perSecond: 10 }

/** Destroys a request that gets interim answers faster than anybody has use for. */
export function limitInterimAnswers(upstream: ClientRequest): void {
  const bucket = new TokenBuckets(interimAnswers)
  upstream.on('information', () => {
    if (bucket.take('') > 0) upstream.destroy(new InterimFlood())
  })
}

class InterimFlood extends Error {
  readonly code = 'ERR_HTTP_INTERIM_FLOOD'
}
