import { isServiceError, ServiceError } from '../errors.ts'
import { listed } from '../lib/listed.ts'
import { userPattern } from './input.ts'
import type { Guest } from './ports/guest.ts'

const passwdBytesMax = 64 * 1024
/** Names in an error. */
const namesMax = 30

/** Throws `invalid_request` with the users that there are, unless the sandbox has the user. An id needs no entry. */
export async function assertUserExists(guest: Guest, user: string): Promise<void> {
  try {
    await guest.stat('/', user)
  } catch (error) {
    if (!isServiceError(error, 'invalid_request')) throw error
    const names = await userNames(guest).catch(() => [])
    const known = names.length === 0 ? '' : `; its users are ${listed(names, namesMax)}`
    throw new ServiceError('invalid_request', `user: the sandbox has no user or group ${user}${known}`, {
      cause: error,
      details: { field: 'user' },
    })
  }
}

/** Of passwd(5), which the sandbox may have written itself: what is no name is left out. */
async function userNames(guest: Guest): Promise<string[]> {
  const { body } = await guest.readFile('/etc/passwd', { end: passwdBytesMax - 1 })
  let text = ''
  for await (const chunk of body) {
    text += String(chunk)
    if (text.length > passwdBytesMax) break
  }
  const names = text.split('\n').map((line) => line.split(':', 1)[0] ?? '')
  return names.filter((name) => userPattern.test(name))
}
