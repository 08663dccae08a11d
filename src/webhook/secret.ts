import { randomBytes } from 'node:crypto'
import { ServiceError } from '../errors.ts'

const prefix = 'whsec_'
const generatedBytes = 24
const [lengthMin, lengthMax] = [16, 256]

/** `whsec_` and base64, as Standard Webhooks says. */
export function newSecret(bytes: Uint8Array = randomBytes(generatedBytes)): string {
  return prefix + Buffer.from(bytes.subarray(0, generatedBytes)).toString('base64')
}

/** Throws `invalid_request` for a secret of a client that is too short, too long, or no text of one line. */
export function assertSecret(secret: string, field = 'secret'): void {
  const isRight = secret.length >= lengthMin && secret.length <= lengthMax && /^[\x20-\x7e]*$/.test(secret)
  if (isRight) return
  throw new ServiceError(
    'invalid_request',
    `${field}: must be ${lengthMin} to ${lengthMax} printable ASCII characters`,
    {
      details: { field },
    },
  )
}

/**
 * The bytes of the key: without `whsec_` what is base64 is decoded, padding ignored; any other secret is its own bytes, `whsec_` included.
 * OpenComputer's SDK verifies so.
 */
export function keyOf(secret: string): Uint8Array {
  const rest = secret.startsWith(prefix) ? secret.slice(prefix.length) : secret
  const decoded = Buffer.from(rest, 'base64')
  const unpadded = (text: string) => text.replace(/=+$/, '')
  const isBase64 = decoded.length > 0 && unpadded(decoded.toString('base64')) === unpadded(rest)
  return isBase64 ? decoded : Buffer.from(secret, 'utf8')
}
