import { randomBytes } from 'node:crypto'
import { newId } from '../lib/id.ts'
import { sha256 } from '../lib/secret.ts'
import type { OrganisationStore } from '../sandbox/index.ts'

/**
 * Makes sure that the default organisation has a key. The configured one is its only one: whoever sets another has ended
 * the one before. Without one, and without any key yet, a new one is made and returned, to be shown this once.
 */
export async function ensureApiKey(organisations: OrganisationStore, configured?: string): Promise<string | undefined> {
  const { id: orgId } = await organisations.defaultOrganisation()
  if (configured === undefined && (await organisations.countApiKeys(orgId)) > 0) return undefined
  const key = configured ?? `atoll_${randomBytes(24).toString('hex')}`
  const keyHash = sha256(key)
  await organisations.insertApiKey({ id: newId('key_'), orgId, keyHash, createdAt: new Date() })
  if (configured === undefined) return key
  await organisations.deleteOtherApiKeys(orgId, keyHash)
  return undefined
}
