import { createHash } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { contentType } from './file-body.ts'
import type { Answer } from './route.ts'

/** What gzip makes smaller. */
const compressible = /^(?:text\/|application\/(?:javascript|json|wasm)|image\/svg)/

/** A file of a build that the server keeps in memory. */
export interface KeptFile {
  bytes: Buffer
  type: string
  etag: string
  /** Made when the first client takes it; undefined where it is no smaller. */
  gzip?: Promise<Buffer | undefined>
}

/** `name` has the extension that the type follows from. */
export function keptFile(name: string, bytes: Buffer): KeptFile {
  return { bytes, type: contentType(name), etag: `"${createHash('sha256').update(bytes).digest('base64url')}"` }
}

/** The answer to GET and HEAD: the file, compressed for who takes that, or 304. `headers` are added to it. */
export async function answerWithFile(
  file: KeptFile,
  asked: IncomingHttpHeaders,
  { headers, statusCode = 200 }: { headers: Record<string, string>; statusCode?: number },
): Promise<Answer> {
  const { bytes, type, etag } = file
  const isCompressible = compressible.test(type)
  const common = {
    etag,
    'x-content-type-options': 'nosniff',
    ...(isCompressible ? { vary: 'accept-encoding' } : {}),
    ...headers,
  }
  if (statusCode === 200 && isKnown(asked, etag)) return { statusCode: 304, headers: common }
  const whole = { ...common, 'content-type': type }
  const packed = isCompressible && takesGzip(asked) ? await (file.gzip ??= packedOf(bytes)) : undefined
  if (packed === undefined) return { statusCode, body: bytes, headers: whole }
  // Another representation has another tag (RFC 9110 § 8.8.3).
  return { statusCode, body: packed, headers: { ...whole, etag: `W/${etag}`, 'content-encoding': 'gzip' } }
}

async function packedOf(bytes: Buffer): Promise<Buffer | undefined> {
  const packed = await promisify(gzip)(bytes, { level: 9 })
  return packed.length < bytes.length ? packed : undefined
}

/** A weight of 0 refuses (RFC 9110 § 12.5.3). */
function takesGzip({ 'accept-encoding': accepted = '' }: IncomingHttpHeaders): boolean {
  const codings = accepted.split(',').map((coding) =>
    coding
      .trim()
      .toLowerCase()
      .split(/\s*;\s*q=/, 2),
  )
  return codings.some(([name, weight = '1']) => name === 'gzip' && Number(weight) > 0)
}

/** `If-None-Match` compares weakly (RFC 9110 § 13.1.2). */
function isKnown({ 'if-none-match': known = '' }: IncomingHttpHeaders, etag: string): boolean {
  return known.split(',').some((tag) => tag.trim().replace(/^W\//, '') === etag)
}

/** Whether a person's browser asks, and no program. */
export function wantsPage({ accept = '' }: IncomingHttpHeaders): boolean {
  return accept.includes('text/html')
}
