import { ServiceError } from '../errors.ts'
import { type SignedParameters, UrlSigner } from '../lib/signed-url.ts'
import { assertSigned } from '../sandbox/index.ts'
import { readName } from './names.ts'

export interface SignArchive {
  expiresInSeconds: number
  bytesMax?: number
}

/** The query as read from the URL, unchecked. */
export interface SignedArchiveQuery extends SignedParameters {
  org?: string | undefined
}

/** URLs that upload the archive of one image without a key. */
export class ArchiveUploads {
  readonly #signer: UrlSigner

  constructor(signingSecret: string) {
    this.#signer = new UrlSigner(signingSecret)
  }

  /** The query string (without `?`) that makes an image of this name in the organisation until `expiresAt`. Throws `invalid_request` for a wrong name. */
  sign(orgId: string, name: string, options: SignArchive): { query: string; expiresAt: Date } {
    readName(name)
    return this.#signer.sign(['archive', orgId, name], { shown: { org: orgId }, ...options })
  }

  /** Whose image a signed query makes. Throws `signature_invalid` or `signature_expired`. */
  verify(name: string, query: SignedArchiveQuery): { orgId: string; bytesMax: number } {
    const { org: orgId = '', maxBytes } = query
    assertSigned(this.#signer.faultOf(['archive', orgId, name], query))
    return { orgId, bytesMax: maxBytes === undefined ? Infinity : Number(maxBytes) }
  }
}

/** Passes an archive on. Throws `too_large` once it has more than the allowed bytes. */
export async function* boundedArchive(
  archive: AsyncIterable<Uint8Array>,
  bytesMax: number,
): AsyncGenerator<Uint8Array> {
  let bytes = 0
  for await (const chunk of archive) {
    bytes += chunk.length
    if (bytes > bytesMax) throw new ServiceError('too_large', `the archive is larger than ${bytesMax} bytes`)
    yield chunk
  }
}
