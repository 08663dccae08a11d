import type { IncomingHttpHeaders } from 'node:http'
import { credentialPrefix, looksLikeCredential, hasHash, sha256 } from '../lib/secret.ts'
import type { PreviewTarget } from '../sandbox/index.ts'

/** Query parameters in which the API takes a key or a token. */
const keyParameters = new Set(['api_key', 'token'])

/**
 * Removes Atoll's credentials from requests before they enter a sandbox: its owner must not learn the key of a client that mixed up
 * hosts. Pages use tokens and headers of the same names, so a value decides and not its name. Generated credentials have a known
 * prefix and are removed anywhere in the head. The configured key may have any form and is removed where the API takes a key. The
 * preview's token is removed where the proxy takes it.
 */
export class Credentials {
  readonly #keyHashes: ReadonlySet<string>

  /** `apiKeyHashes`: SHA-256 of configured keys. */
  constructor(apiKeyHashes: readonly string[] = []) {
    this.#keyHashes = new Set(apiKeyHashes)
  }

  /** A URL, absolute or not, without credentials in its query. Other parameters stay byte for byte. */
  strippedUrl(url: string): string {
    const [, path = '', query, fragment = ''] = /^([^?#]*)(?:\?([^#]*))?(#.*)?$/s.exec(url) ?? []
    if (query === undefined) return url
    const parameters = query.split('&')
    const kept = parameters.filter((parameter) => !this.#isCredentialParameter(parameter))
    if (kept.length === parameters.length) return url
    return `${path}${kept.length === 0 ? '' : `?${kept.join('&')}`}${fragment}`
  }

  /** The rest of a header's value, or undefined to remove the header. `name` is in lower case. */
  strippedHeader(name: string, value: string, target: PreviewTarget): string | undefined {
    const text = withoutScheme(value)
    switch (name) {
      case 'x-oc-preview-token':
        return undefined
      case 'x-api-key':
        return this.#isCredential(text) ? undefined : value
      case 'authorization':
        return this.#isCredential(text) || isTokenOf(target, text) ? undefined : value
      case 'referer':
        return this.strippedUrl(value)
      case 'cookie':
        return strippedList(value, ';', (pair) => pair.slice(pair.indexOf('=') + 1))
      case 'sec-websocket-protocol':
        return strippedList(value, ',', (protocol) => protocol)
      default:
        return looksLikeCredential(text) ? undefined : value
    }
  }

  #isCredentialParameter(parameter: string): boolean {
    const [name = '', ...rest] = parameter.split('=')
    const value = rest.join('=')
    // The API takes badly encoded text as it is, and a plus may be a space.
    const readings = [decoded(value), decoded(value.replaceAll('+', ' '))]
    return keyParameters.has(decoded(name))
      ? readings.some((reading) => this.#isCredential(reading))
      : readings.some(looksLikeCredential)
  }

  /** For places where the API takes a credential: there the prefix alone shows that a key was meant, even a mistyped one. */
  #isCredential(text: string): boolean {
    if (text.toLowerCase().startsWith(credentialPrefix) || looksLikeCredential(text)) return true
    return this.#keyHashes.has(sha256(text))
  }
}

/** Whether a text is the token of a preview or of its sandbox. */
function isTokenOf({ tokenHash, sandbox }: PreviewTarget, text: string): boolean {
  return [tokenHash, sandbox.previewTokenHash].some((hash) => hash !== undefined && hasHash(text, hash))
}

function withoutScheme(value: string): string {
  return value.replace(/^Bearer +/i, '')
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** A list without items that look like credentials, or undefined when none is left. */
function strippedList(value: string, separator: string, textOf: (item: string) => string): string | undefined {
  const items = value.split(separator)
  const kept = items.filter((item) => !looksLikeCredential(decoded(textOf(item).trim().replaceAll('"', ''))))
  if (kept.length === items.length) return value
  return kept.length === 0 ? undefined : kept.join(separator).trim()
}

/** Whether a request has the token of its preview, if that needs one. Compares in constant time and does not wake the sandbox. */
export function hasToken({ tokenHash }: PreviewTarget, headers: IncomingHttpHeaders): boolean {
  if (tokenHash === undefined) return true
  const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1]
  return [bearer, headers['x-oc-preview-token']].some((token) => typeof token === 'string' && hasHash(token, tokenHash))
}
