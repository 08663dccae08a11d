import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { ServiceError } from '../errors.ts'

export interface SystemUser {
  name: string
  uid: number
  gid: number
}

/** The users of parts that do not run as root, which setup makes: PostgreSQL refuses root, and what answers of strangers are read by is not trusted. */
const systemUsers = { database: 'atoll-db', webhooks: 'atoll-webhooks', egress: 'atoll-egress' }

/** Throws `unavailable` when setup has not made the user. */
export async function findSystemUser(part: keyof typeof systemUsers): Promise<SystemUser> {
  const name = systemUsers[part]
  const { stdout } = await promisify(execFile)('getent', ['passwd', name]).catch(() => ({ stdout: '' }))
  const [, , uid = '', gid = ''] = stdout.split(':')
  if (!/^\d+$/.test(uid) || !/^\d+$/.test(gid)) {
    throw new ServiceError('unavailable', `there is no system user ${name}, for the ${part}: npm run setup makes it`)
  }
  return { name, uid: Number(uid), gid: Number(gid) }
}
