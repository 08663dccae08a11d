/**
 * How placeholders look. A client that checks the form of its key takes one of the right shape. A shape is a name of the table, or a pattern:
 * text as it is, `{N}` for N letters and digits, `{hex:N}`, `{lower:N}` (a-z, 0-9), `{upper:N}` (A-Z, 0-9), `{digit:N}`, `{base64url:N}`.
 */
import { randomBytes, randomInt, randomUUID } from 'node:crypto'

const digits = '0123456789'
const lower = 'abcdefghijklmnopqrstuvwxyz'
const upper = lower.toUpperCase()
const alphabets: Readonly<Record<string, string>> = {
  any: upper + lower + digits,
  hex: `${digits}abcdef`,
  lower: lower + digits,
  upper: upper + digits,
  digit: digits,
  base64url: `${upper}${lower}${digits}-_`,
}

export const defaultShape = 'sealed'

const known: Readonly<Record<string, string | (() => string)>> = {
  sealed: 'osb_sealed_{hex:32}',
  openai: 'sk-{48}',
  anthropic: 'sk-ant-api03-{base64url:93}AA',
  github: 'ghp_{36}',
  'github-pat': 'github_pat_{22}_{59}',
  gitlab: 'glpat-{20}',
  npm: 'npm_{36}',
  slack: 'xoxb-{digit:12}-{digit:12}-{24}',
  // An id, which AWS makes of 20 characters: fewer random bits than a secret has.
  'aws-access-key': 'AKIA{upper:16}',
  'aws-secret-key': '{40}',
  stripe: 'sk_live_{24}',
  google: 'AIza{base64url:35}',
  jwt: newToken,
  uuid: () => randomUUID(),
}

export const knownShapes = Object.keys(known)

const lengthMax = 256
const entropyBitsMin = 96
/** Random parts, and characters that no encoding of a URL, a form, JSON or Base64 changes. */
const partPattern = /\{(?:([a-z0-9]+):)?(\d{1,3})\}|([A-Za-z0-9._~-]+)/y

type Part = string | { alphabet: string; count: number }

/** Why a text is no shape; undefined when it is one. */
export function shapeFault(shape: string): string | undefined {
  if (Object.hasOwn(known, shape)) return undefined
  const parts = partsOf(shape)
  if (parts === undefined)
    return `must be one of ${knownShapes.join(', ')}, or a pattern such as my-{32} of letters, digits, "._~-" and {N}, {hex:N}, {lower:N}, {upper:N}, {digit:N}, {base64url:N}`
  const length = parts.reduce((sum, part) => sum + (typeof part === 'string' ? part.length : part.count), 0)
  if (length > lengthMax) return `must make at most ${lengthMax} characters`
  const bits = parts.reduce(
    (sum, part) => sum + (typeof part === 'string' ? 0 : part.count * Math.log2(part.alphabet.length)),
    0,
  )
  if (bits < entropyBitsMin)
    return `must have at least ${entropyBitsMin} random bits, as {17} or {hex:24} has; it has ${Math.floor(bits)}`
  return undefined
}

/** A placeholder that nobody has guessed or seen. Throws for what is no shape. */
export function newPlaceholder(shape: string): string {
  const made = Object.hasOwn(known, shape) ? known[shape] : shape
  if (typeof made === 'function') return made()
  const parts = partsOf(made ?? shape)
  if (parts === undefined) throw new Error('a placeholder of no shape')
  return parts.map((part) => (typeof part === 'string' ? part : randomText(part.alphabet, part.count))).join('')
}

function partsOf(pattern: string): Part[] | undefined {
  const parts: Part[] = []
  partPattern.lastIndex = 0
  while (partPattern.lastIndex < pattern.length) {
    const found = partPattern.exec(pattern)
    if (found === null) return undefined
    const [, name = 'any', count, text] = found
    const alphabet = Object.hasOwn(alphabets, name) ? alphabets[name] : undefined
    if (text === undefined && alphabet === undefined) return undefined
    parts.push(text ?? { alphabet: alphabet ?? '', count: Number(count) })
  }
  return parts
}

function randomText(alphabet: string, count: number): string {
  return Array.from({ length: count }, () => alphabet[randomInt(alphabet.length)]).join('')
}

/** Three parts that decode to JSON, as clients read them before they send one. */
function newToken(): string {
  const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const id = randomBytes(16).toString('hex')
  return [encoded({ alg: 'HS256', typ: 'JWT' }), encoded({ jti: id }), randomBytes(32).toString('base64url')].join('.')
}
