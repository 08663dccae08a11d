import type { SystemUser } from '../../lib/system-user.ts'
import type { EgressAuthority } from '../../sandbox/ports/egress.ts'
import { CommandError, type Run } from '../command.ts'
import { unavailable } from './channel.ts'
import { unprivileged } from './unprivileged.ts'

const outputBytesMax = 64 * 1024

/** Has the program make a certificate authority. Throws `unavailable`. The output has a private key and is in no error. */
export async function makeAuthority(
  run: Run,
  user: Pick<SystemUser, 'uid' | 'gid'>,
  program: readonly string[],
): Promise<EgressAuthority> {
  const said = await run(unprivileged(user, [...program, 'authority'])).catch((error: unknown) => {
    throw unavailable(`its program makes no authority: ${error instanceof CommandError ? error.message : 'it failed'}`)
  })
  const { certificate, key } = said.length > outputBytesMax ? {} : fields(said)
  if (!isPem(certificate, 'CERTIFICATE') || !isPem(key, 'PRIVATE KEY')) {
    throw unavailable('what its program has made is no authority')
  }
  return { certificate, key }
}

function fields(said: string): { certificate?: unknown; key?: unknown } {
  try {
    return (JSON.parse(said) ?? {}) as { certificate?: unknown; key?: unknown }
  } catch {
    return {}
  }
}

function isPem(value: unknown, what: string): value is string {
  return typeof value === 'string' && value.includes(`-----BEGIN ${what}-----`)
}
