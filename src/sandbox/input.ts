import { randomBytes } from 'node:crypto'
import { ServiceError } from '../errors.ts'
import { bytesOfPath } from '../lib/byte-path.ts'
import { nameFault } from '../lib/resource-name.ts'
import { previewTokenPrefix } from '../lib/secret.ts'
import type { SignatureFault } from '../lib/signed-url.ts'
import type { Creation } from '../lib/creation.ts'
import type { SandboxLimits } from './quota.ts'
import { type CreateSandbox, idleActions, type PreviewAuth } from './sandbox.ts'

/** Throws `invalid_request` with the field unless the condition holds. Schemas in `protocol/http/` check shapes and fixed bounds. */
export function assertInput(condition: boolean, field: string, rule: string): asserts condition {
  if (!condition) throw new ServiceError('invalid_request', `${field} ${rule}`, { details: { field } })
}

export function assertInteger(value: number, field: string, min: number, max: number): void {
  assertInput(
    Number.isInteger(value) && value >= min && value <= max,
    field,
    `must be a whole number from ${min} to ${max}`,
  )
}

const envNamePattern = /^[A-Za-z_][A-Za-z0-9_]*$/
const envsBytesMax = 128 * 1024

/** Checks a name that a client gives to a sandbox or a session. */
export function assertName(name: string): void {
  const fault = nameFault(name)
  assertInput(fault === undefined, 'name', fault ?? '')
}

/** Environment names are those of POSIX shells (XBD § 8.1), so that every program can read them. */
export function assertEnvs(envs: Record<string, string>, field = 'envs'): void {
  let bytes = 0
  const assertBytes = () => assertInput(bytes <= envsBytesMax, field, `must be at most ${envsBytesMax} bytes together`)
  for (const [name, value] of Object.entries(envs)) {
    bytes += name.length + value.length + 2
    // Check early, before the rest of megabytes of text is read. A character is one byte or more.
    assertBytes()
    assertInput(envNamePattern.test(name), field, `has a name that is no environment variable: ${JSON.stringify(name)}`)
    assertInput(!value.includes('\0'), `${field}.${name}`, 'must not contain NUL')
    bytes += Buffer.byteLength(value) - value.length
  }
  assertBytes()
}

/** Throws the fault of a signed URL, if it has one. */
export function assertSigned(fault: SignatureFault | undefined): void {
  if (fault === undefined) return
  const why =
    fault === 'signature_expired' ? 'the URL has expired' : 'the URL is not signed, or its signature does not match it'
  throw new ServiceError(fault, why)
}

/** A name or id, optionally with a group behind a colon. */
export const userPattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$/

/** Checks the form of a user. The sandbox alone knows its users. */
export function assertUser(user: string): void {
  assertInput(userPattern.test(user), 'user', 'must be a user name or id, and a group behind a colon if wanted')
}

const metadataBytesMax = 64 * 1024
/** A year; also of a checkpoint. */
export const lifeSecondsMax = 31_536_000

/** Checks what a client chooses for a new sandbox, whatever it starts from. */
export function assertNewSandbox(
  input: Omit<CreateSandbox, 'id' | 'image' | 'previewAuth'>,
  limits: SandboxLimits,
): void {
  const { name, timeoutSeconds, onIdle, maxAgeSeconds, cpuCount, memoryMb, diskMb, envs = {}, metadata = {} } = input
  const { user } = input
  if (name !== undefined) assertName(name)
  if (timeoutSeconds !== undefined) assertInteger(timeoutSeconds, 'timeout', 0, limits.timeoutSecondsMax)
  if (onIdle !== undefined) assertInput(idleActions.includes(onIdle), 'onIdle', `must be ${idleActions.join(' or ')}`)
  if (maxAgeSeconds !== undefined) assertInteger(maxAgeSeconds, 'maxAgeSeconds', 0, lifeSecondsMax)
  if (cpuCount !== undefined) assertInteger(cpuCount, 'cpuCount', 1, limits.cpuCountMax)
  if (memoryMb !== undefined) assertInteger(memoryMb, 'memoryMB', limits.memoryMbMin, limits.memoryMbMax)
  if (diskMb !== undefined) assertInteger(diskMb, 'diskMB', limits.diskMbMin, limits.diskMbMax)
  assertEnvs(envs)
  if (user !== undefined) assertUser(user)
  const characters = Object.entries(metadata).reduce((sum, [key, value]) => sum + key.length + value.length, 0)
  const fits = characters <= metadataBytesMax && Buffer.byteLength(JSON.stringify(metadata)) <= metadataBytesMax
  assertInput(fits, 'metadata', `must be at most ${metadataBytesMax} bytes of JSON`)
}

const pathBytesMax = 4096

/** Checks that a path is absolute. `..` is harmless, as the root of the sandbox bounds every path. */
export function assertPath(path: string, field = 'path'): void {
  assertInput(path.length <= pathBytesMax, field, `must be at most ${pathBytesMax} bytes`)
  assertInput(path.startsWith('/'), field, 'must be an absolute path')
  assertInput(!path.includes('\0'), field, 'must not contain NUL')
  const bytes = bytesOfPath(path)
  assertInput(bytes !== undefined, field, 'must be well-formed text')
  assertInput(bytes.length <= pathBytesMax, field, `must be at most ${pathBytesMax} bytes`)
}

const tagsMax = 50
const tagKeyPattern = /^[A-Za-z0-9_.\-:]{1,128}$/
const tagValueLengthMax = 256

export function assertTags(tags: Record<string, string>): void {
  assertInput(Object.keys(tags).length <= tagsMax, 'tags', `must have at most ${tagsMax} keys`)
  for (const [key, value] of Object.entries(tags)) {
    assertInput(tagKeyPattern.test(key), 'tags', `has an invalid key: ${JSON.stringify(key.slice(0, 140))}`)
    assertInput(value.length <= tagValueLengthMax, `tags.${key}`, `must be at most ${tagValueLengthMax} characters`)
  }
}

const tokenLengthMin = 16
const tokenLengthMax = 512

/** The token of a preview: the caller's, or a random one of 256 bits. */
export function previewToken(auth: PreviewAuth, field: string, creation?: Creation): string {
  if (auth.token === undefined || auth.token === 'auto') {
    return `${previewTokenPrefix}${creation?.secret('preview token') ?? randomBytes(32).toString('base64url')}`
  }
  const { length } = auth.token
  assertInput(
    length >= tokenLengthMin && length <= tokenLengthMax,
    `${field}.token`,
    `must be "auto" or ${tokenLengthMin} to ${tokenLengthMax} characters`,
  )
  return auth.token
}
