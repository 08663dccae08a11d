import { randomBytes } from 'node:crypto'
import { credentialPrefix } from '../lib/credential.ts'
import { newId } from '../lib/id.ts'
import { sha256 } from '../lib/secret.ts'
import type { OrganisationStore } from '../organisation/index.ts'

/** Makes the configured key the only one of the default organisation: whoever sets another has ended the one before. */
export async function configureApiKey(organisations: OrganisationStore, configured: string): Promise<void> {
  const { id: orgId } = await organisations.defaultOrganisation()
  await insertApiKey(organisations, orgId, configured)
  await organisations.deleteOtherApiKeys(orgId, sha256(configured))
}

/**
 * Makes a key where the default organisation has none, and returns it. It is shown before it is stored: a start that dies in
 * between leaves no key, and the next one shows another. In the other order it would leave a key that nobody has seen.
 */
export async function makeFirstApiKey(
  organisations: OrganisationStore,
  show: (key: string) => void,
): Promise<string | undefined> {
  const { id: orgId } = await organisations.defaultOrganisation()
  if ((await organisations.countApiKeys(orgId)) > 0) return undefined
  const key = `${credentialPrefix}${randomBytes(24).toString('hex')}`
  show(key)
  await insertApiKey(organisations, orgId, key)
  return key
}

async function insertApiKey(organisations: OrganisationStore, orgId: string, key: string): Promise<void> {
  await organisations.insertApiKey({ id: newId('key_'), orgId, keyHash: sha256(key), createdAt: new Date() })
}
