import { credentialPrefix, looksLikeCredential, hasHash, sha256 } from '../lib/secret.ts'
import type { PreviewTarget } from '../sandbox/index.ts'

/** Where the API takes a key from a query, and a token. */
const keyParameters = new Set(['api_key', 'token'])

/**
 * Takes Atoll's credentials out of requests on their way into a sandbox, whose owner must not learn them from clients that mix up
 * hosts. They are known by what they are, since pages have tokens and headers of the same names for themselves: by the looks of
 * those that the server makes, anywhere in the head of a request; the configured key, which may look like anything, where the
 * API would take it; the preview's own token, where the proxy would.
 */
export class Credentials {
  readonly #keyHashes: ReadonlySet<string>

  /** `apiKeyHashes` are those of keys that may look like anything. */
  constructor(apiKeyHashes: readonly string[] = []) {
    this.#keyHashes = new Set(apiKeyHashes)
  }

  /** An address, absolute or not, without those parameters of its query that are credentials; the others stay byte for byte. */
  strippedUrl(url: string): string {
    const [, path = '', query, fragment = ''] = /^([^?#]*)(?:\?([^#]*))?(#.*)?$/s.exec(url) ?? []
    if (query === undefined) return url
    const parameters = query.split('&')
    const kept = parameters.filter((parameter) => !this.#isCredentialParameter(parameter))
    if (kept.length === parameters.length) return url
    return `${path}${kept.length === 0 ? '' : `?${kept.join('&')}`}${fragment}`
  }

  /** What is left of a header, whose name is in lower case; undefined when it must not go on. */
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
    // What is encoded badly the API takes as it is, and a space may be a plus.
    const readings = [decoded(value), decoded(value.replaceAll('+', ' '))]
    return keyParameters.has(decoded(name))
      ? readings.some((reading) => this.#isCredential(reading))
      : readings.some(looksLikeCredential)
  }

  /** For places where the API takes a credential, in which also a cut or mistyped one shows that a key was meant. */
  #isCredential(text: string): boolean {
    if (text.toLowerCase().startsWith(credentialPrefix) || looksLikeCredential(text)) return true
    return this.#keyHashes.has(sha256(text))
  }
}

/** Whether a text is the token that a preview demands, or that of its whole sandbox. */
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

/** A list without the items that look like credentials; undefined when none is left. */
function strippedList(value: string, separator: string, textOf: (item: string) => string): string | undefined {
  const items = value.split(separator)
  const kept = items.filter((item) => !looksLikeCredential(decoded(textOf(item).trim().replaceAll('"', ''))))
  if (kept.length === items.length) return value
  return kept.length === 0 ? undefined : kept.join(separator).trim()
}
