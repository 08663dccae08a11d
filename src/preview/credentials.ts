import {
  apiKeyPrefix,
  credentialLengthMin,
  hasHash,
  looksLikeCredential,
  previewTokenPrefix,
  sha256,
} from '../lib/secret.ts'
import { withoutItems } from './items.ts'
import type { PreviewTarget } from '../sandbox/index.ts'

/**
 * Cookies of visitors who have shown a preview's token. `__Host-`: a browser takes it only over TLS, for one host and all paths (RFC 6265bis
 * § 4.1.3.2).
 */
export const cookieNames = { plain: 'atoll-preview', tls: '__Host-atoll-preview' } as const
const ownCookie = /^\s*(?:__Host-)?atoll-preview\s*(?:=|$)/
/** Query parameters in which the API takes a key or a token. */
const keyParameters = new Set(['api_key', 'token'])
/** Length of the shortest parameter with a value. */
const parameterLengthMin = 'token=x'.length

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
  strippedUrl(url: string, target: PreviewTarget): string {
    return withoutParameters(url, (parameter) => this.#isCredentialParameter(parameter, target))
  }

  /** The rest of a header's value, or undefined to remove the header. `name` is in lower case. */
  strippedHeader(name: string, value: string, target: PreviewTarget): string | undefined {
    const text = value.replace(/^Bearer +/i, '')
    switch (name) {
      case 'x-oc-preview-token':
        return undefined
      case 'x-api-key':
        return this.#isCredential(text) ? undefined : value
      case 'authorization':
        return this.#isCredential(text) || isTokenOf(target, text) ? undefined : value
      case 'referer':
        return this.strippedUrl(value, target)
      case 'cookie':
        return strippedList(withoutOwnCookies(value), ';', (pair) => pair.slice(pair.indexOf('=') + 1))
      case 'sec-websocket-protocol':
        return strippedList(value, ',', (protocol) => protocol)
      default:
        return looksLikeCredential(text) ? undefined : value
    }
  }

  #isCredentialParameter(parameter: string, target: PreviewTarget): boolean {
    const end = parameter.indexOf('=')
    // Most are neither, and a query can have thousands of them.
    if (end === -1) return false
    const value = parameter.slice(end + 1)
    if (!keyParameters.has(plainDecoded(parameter.slice(0, end)))) return looksLikeCredential(plainDecoded(value))
    return readingsOf(value).some((reading) => this.#isCredential(reading) || isTokenOf(target, reading))
  }

  /** For places where the API takes a credential: there the prefix alone shows that a key was meant, even a mistyped one. */
  #isCredential(text: string): boolean {
    const lower = text.toLowerCase()
    if (lower.startsWith(apiKeyPrefix) || lower.startsWith(previewTokenPrefix) || looksLikeCredential(text)) return true
    return this.#keyHashes.has(sha256(text))
  }
}

function withoutParameters(url: string, isDropped: (parameter: string) => boolean): string {
  const [, path = '', query, fragment = ''] = /^([^?#]*)(?:\?([^#]*))?(#.*)?$/s.exec(url) ?? []
  if (query === undefined) return url
  const kept = withoutItems(query, '&', parameterLengthMin, isDropped)
  return `${path}${kept === undefined ? '' : `?${kept}`}${fragment}`
}

/** The API takes badly encoded text as it is, and a plus may be a space. */
function readingsOf(value: string): string[] {
  return (value.includes('+') ? [value, value.replaceAll('+', ' ')] : [value]).map(decoded)
}

/** Whether a parameter of a query is `token=` with such a token. */
export function isTokenParameter(parameter: string, isToken: (text: string) => boolean): boolean {
  const end = parameter.indexOf('=')
  if (end === -1 || plainDecoded(parameter.slice(0, end)) !== 'token') return false
  return readingsOf(parameter.slice(end + 1)).some((reading) => isToken(reading))
}

/** A URL without such tokens in its query. */
export function withoutToken(url: string, isToken: (text: string) => boolean): string {
  return withoutParameters(url, (parameter) => isTokenParameter(parameter, isToken))
}

/** Whether a text is the token of a preview or of its sandbox. */
function isTokenOf({ tokenHash, sandbox }: PreviewTarget, text: string): boolean {
  return [tokenHash, sandbox.previewTokenHash].some((hash) => hash !== undefined && hasHash(text, hash))
}

/** Decodes ASCII characters, which are all that a credential has. Other characters may stay encoded. Never throws. */
function plainDecoded(text: string): string {
  if (!text.includes('%')) return text
  return text.replaceAll(/%([0-7][0-9a-f])/gi, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)))
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** Without the cookies of the proxy. */
function withoutOwnCookies(value: string): string | undefined {
  const kept = withoutItems(value, ';', cookieNames.plain.length, (pair) => ownCookie.test(pair))
  return kept === value ? value : kept?.trim()
}

/** A list without items that look like credentials, or undefined when none is left. */
function strippedList(
  value: string | undefined,
  separator: string,
  textOf: (item: string) => string,
): string | undefined {
  if (value === undefined) return undefined
  const isCredential = (item: string) => looksLikeCredential(plainDecoded(textOf(item).trim().replaceAll('"', '')))
  // An item with a credential, encoded or not, is at least this long.
  const kept = withoutItems(value, separator, credentialLengthMin, isCredential)
  return kept === value ? value : kept?.trim()
}
