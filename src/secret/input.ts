import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { hostPattern } from '../lib/host-pattern.ts'
import type { SecretLimits } from './limits.ts'
import { defaultPlaces, type Place, places as allPlaces, type SecretRules, type Signing } from './secret.ts'
import { defaultShape, shapeFault } from './shape.ts'

/** What a client says of a secret. */
export interface SecretInput {
  value: string
  allowedHosts?: readonly string[] | undefined
  /** Where placeholders are replaced. */
  in?: readonly Place[] | undefined
  /** The shape of placeholders. */
  placeholder?: string | undefined
  sign?: { type: 'aws-sigv4'; accessKeyId?: string | undefined } | undefined
}

const storeNameCharactersMax = 128
const secretNamePattern = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/
const shownCharactersMax = 60
const defaultAccessKeyId = 'AWS_ACCESS_KEY_ID'

export function isSecretName(name: string): boolean {
  return secretNamePattern.test(name)
}

export function assertSecretName(name: string, field = 'name'): void {
  if (!isSecretName(name))
    throw invalid(field, 'must be a letter or "_", then at most 63 letters, digits and "_", as a variable has it')
}

export function assertStoreName(name: string): void {
  const fits = /^\P{Cc}+$/u.test(name) && name.length <= storeNameCharactersMax && name.trim() === name
  if (!fits)
    throw invalid(
      'name',
      `must be 1 to ${storeNameCharactersMax} characters, without control characters or blanks around it`,
    )
}

/** The value and the rules of a secret in their normal form. Throws `invalid_request` with the field behind `prefix`. No error has the value. */
export function readSecret(
  name: string,
  input: SecretInput,
  { valueBytesMax, hostsMax }: SecretLimits,
  prefix = '',
): { value: string; rules: SecretRules } {
  const { value, allowedHosts = [], placeholder: shape = defaultShape } = input
  if (value === '') throw invalid(`${prefix}value`, 'must not be empty')
  if (value.includes('\0')) throw invalid(`${prefix}value`, 'must not contain NUL characters')
  if (Buffer.byteLength(value) > valueBytesMax)
    throw invalid(`${prefix}value`, `must be at most ${valueBytesMax} bytes`)
  const fault = shapeFault(shape)
  if (fault !== undefined) throw invalid(`${prefix}placeholder`, fault)
  const sign = readSigning(name, input.sign, `${prefix}sign.accessKeyId`)
  return {
    value: value.toWellFormed(),
    rules: {
      allowedHosts: readHosts(allowedHosts, `${prefix}allowedHosts`, hostsMax),
      places: readPlaces(input.in, sign, `${prefix}in`),
      shape,
      ...defined({ sign }),
    },
  }
}

/** Hosts in the form in which they are compared, each once. */
export function readHosts(hosts: readonly string[], field: string, hostsMax: number): string[] {
  if (hosts.length > hostsMax) throw invalid(field, `must have at most ${hostsMax} hosts`)
  const read = hosts.map((host, index) => {
    const pattern = hostPattern(host)
    if (pattern !== undefined) return pattern
    const shown = JSON.stringify(host.slice(0, shownCharactersMax))
    throw invalid(
      `${field}.${index}`,
      `must be a host name, "*.name" or "*", without a scheme, a port or a path: ${shown}`,
    )
  })
  return [...new Set(read)]
}

function readPlaces(given: readonly Place[] | undefined, sign: Signing | undefined, field: string): Place[] {
  // What signs is not sent, unless that is asked for.
  const chosen = given ?? (sign === undefined ? defaultPlaces : [])
  if (chosen.length === 0 && sign === undefined)
    throw invalid(field, `must have at least one of ${allPlaces.join(', ')}`)
  return allPlaces.filter((place) => chosen.includes(place))
}

function readSigning(name: string, sign: SecretInput['sign'], field: string): Signing | undefined {
  if (sign === undefined) return undefined
  const { type, accessKeyId = defaultAccessKeyId } = sign
  if (!isSecretName(accessKeyId))
    throw invalid(field, 'must be the name of the secret that holds the id of the access key')
  if (accessKeyId === name) throw invalid(field, 'must be the name of another secret')
  return { type, accessKeyId }
}

export function invalid(field: string, rule: string): ServiceError {
  return new ServiceError('invalid_request', `${field} ${rule}`, { details: { field } })
}
