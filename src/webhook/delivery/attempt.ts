import { lookup as systemLookup, type LookupAddress } from 'node:dns'
import { request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { isIP, type LookupFunction } from 'node:net'
import { addressFault, type AllowedTargets, isNamed, targetOf, urlFault } from '../target.ts'

/** Of one attempt, from the look-up of the name to the end of the answer. */
const attemptMs = 10_000
/** What is read of an answer. */
const answerBytesMax = 64 * 1024
const headerBytesMax = 16 * 1024

export type AllLookup = (hostname: string) => Promise<LookupAddress[]>

export interface AttemptOptions {
  allowed: AllowedTargets
  lookup?: AllLookup
  timeoutMs?: number
  signal?: AbortSignal
}

export interface AttemptResult {
  isSuccess: boolean
  statusCode?: number
  /** Why it failed, for people. */
  error?: string
}

/**
 * One POST. The name is looked up once, each address is checked, and exactly a checked one is dialled, so an answer of DNS that changes between
 * check and connection changes nothing. Redirects are not followed and no proxy is used. Never throws.
 */
export async function attempt(
  url: string,
  { headers, body }: { headers: Record<string, string>; body: string },
  { allowed, lookup = lookUpAll, timeoutMs = attemptMs, signal }: AttemptOptions,
): Promise<AttemptResult> {
  const fault = urlFault(url, allowed)
  if (fault !== undefined) return { isSuccess: false, error: `url ${fault}` }
  const timeout = AbortSignal.timeout(timeoutMs)
  try {
    const statusCode = await post(
      new URL(url),
      { headers, body },
      {
        allowed,
        lookup,
        signal: signal === undefined ? timeout : AbortSignal.any([timeout, signal]),
      },
    )
    if (statusCode >= 200 && statusCode < 300) return { isSuccess: true, statusCode }
    const error =
      statusCode >= 300 && statusCode < 400
        ? `it was answered with a redirect (${statusCode}), which is not followed`
        : `it was answered with ${statusCode}`
    return { isSuccess: false, statusCode, error }
  } catch (error) {
    const late = `no whole answer within ${timeoutMs / 1000} s`
    return { isSuccess: false, error: timeout.aborted ? late : reasonOf(error) }
  }
}

async function post(
  url: URL,
  { headers, body }: { headers: Record<string, string>; body: string },
  { allowed, lookup, signal }: { allowed: AllowedTargets; lookup: AllLookup; signal: AbortSignal },
): Promise<number> {
  const { host, port } = targetOf(url)
  const address = await checkedAddress(url, host, allowed, lookup, signal)
  const dial: LookupFunction = (_hostname, options, done) => {
    const family = isIP(address)
    if (options.all === true) done(null, [{ address, family }])
    else done(null, address, family)
  }
  const options = {
    ...{ host, port, path: url.pathname + url.search, method: 'POST', lookup: dial, agent: false, signal },
    ...{
      maxHeaderSize: headerBytesMax,
      headers: { ...headers, host: url.host, 'content-length': Buffer.byteLength(body) },
    },
  }
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  const request: ClientRequest =
    url.protocol === 'https:'
      ? // The certificate is of the name, whatever address was dialled.
        httpsRequest({ ...options, ...(isIP(host) === 0 ? { servername: host } : {}), minVersion: 'TLSv1.2' })
      : httpRequest(options)
  request.on('error', reject)
  request.on('response', (response) => void readAnswer(response).then(resolve, reject))
  request.on('upgrade', (_response, socket) => {
    socket.destroy()
    reject(new Error('it was answered with an upgrade'))
  })
  request.end(body)
  try {
    return await promise
  } finally {
    request.destroy()
  }
}

/** The status, once the answer has ended or is longer than is read. */
async function readAnswer(response: IncomingMessage): Promise<number> {
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > answerBytesMax) break
  }
  return response.statusCode ?? 0
}

async function checkedAddress(
  url: URL,
  host: string,
  allowed: AllowedTargets,
  lookup: AllLookup,
  signal: AbortSignal,
): Promise<string> {
  const isTrusted = isNamed(url, allowed)
  const found = isIP(host) === 0 ? await withSignal(lookup(host), signal) : [{ address: host, family: isIP(host) }]
  const faults = found.map(({ address }) => (isTrusted ? undefined : addressFault(address, allowed)))
  // One address that is not public makes the name one that is not trusted.
  const fault = faults.find((one) => one !== undefined)
  if (fault !== undefined) throw new Error(`${host} does not lead to a public address: ${fault}`)
  const [first] = found
  if (first === undefined) throw new Error(`${host} has no address`)
  return first.address
}

async function withSignal<Result>(work: Promise<Result>, signal: AbortSignal): Promise<Result> {
  signal.throwIfAborted()
  const { promise, reject } = Promise.withResolvers<never>()
  const abort = () => reject(new Error('the look-up of the name took too long'))
  signal.addEventListener('abort', abort, { once: true })
  try {
    return await Promise.race([work, promise])
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

async function lookUpAll(hostname: string): Promise<LookupAddress[]> {
  return await new Promise((resolve, reject) => {
    systemLookup(hostname, { all: true }, (error, addresses) => (error ? reject(error) : resolve(addresses)))
  })
}

const reasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'the connection was refused',
  ECONNRESET: 'the connection was closed before an answer',
  EHOSTUNREACH: 'the host cannot be reached',
  ENETUNREACH: 'the network cannot be reached',
  ETIMEDOUT: 'the host did not answer',
  ENOTFOUND: 'the name has no address',
  EAI_AGAIN: 'the name could not be looked up',
  EPIPE: 'the connection was closed before an answer',
  HPE_HEADER_OVERFLOW: 'the headers of the answer are too long',
}
const reasonLengthMax = 300

function reasonOf(error: unknown): string {
  const { code = '', message } = error as NodeJS.ErrnoException
  const known = reasons[code] ?? (code.startsWith('HPE_') ? 'the answer is no HTTP' : undefined)
  const isOfTls =
    known === undefined && (/^(?:ERR_TLS|ERR_SSL|CERT|UNABLE|DEPTH|SELF)/.test(code) || /certificate/.test(message))
  return (known ?? (isOfTls ? `TLS: ${message}` : message)).slice(0, reasonLengthMax)
}
