import { randomBytes } from 'node:crypto'
import { link, open, readFile, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { newId } from '../lib/id.ts'
import { apiKeyPrefix, sha256 } from '../lib/secret.ts'
import { syncFolder } from '../lib/sync-folder.ts'
import { type Operator, operatorKeyPrefix, type OrganisationStore } from '../organisation/index.ts'

type KeyStore = Pick<
  OrganisationStore,
  'defaultOrganisation' | 'insertApiKey' | 'deleteOtherDefaultKeys' | 'countDefaultKeys'
>

/** Makes the configured key the default key of the default organisation, so a new value revokes the previous one. Its other keys stay. */
export async function configureApiKey(organisations: KeyStore, configured: string): Promise<void> {
  const { id: orgId } = await organisations.defaultOrganisation()
  await insertApiKey(organisations, orgId, configured)
  await organisations.deleteOtherDefaultKeys(orgId, sha256(configured))
}

/**
 * Creates a default key if there is none, and returns it. The key is printed before it is stored: a start that dies in
 * between leaves no key, and the next start prints another. The opposite order would leave a key that nobody has seen.
 */
export async function makeFirstApiKey(
  organisations: KeyStore,
  show: (key: string) => void,
): Promise<string | undefined> {
  const { id: orgId } = await organisations.defaultOrganisation()
  if ((await organisations.countDefaultKeys(orgId)) > 0) return undefined
  const key = `${apiKeyPrefix}${randomBytes(24).toString('hex')}`
  show(key)
  await insertApiKey(organisations, orgId, key)
  return key
}

/** Like `makeFirstApiKey`, for the operator. */
export async function makeOperatorKey(operator: Operator, show: (key: string) => void): Promise<void> {
  if (operator.hasKey()) return
  const key = `${operatorKeyPrefix}${randomBytes(24).toString('hex')}`
  show(key)
  await operator.putKey(key)
}

async function insertApiKey(organisations: KeyStore, orgId: string, key: string): Promise<void> {
  await organisations.insertApiKey({
    ...{ id: newId('key_'), orgId, keyHash: sha256(key), isDefault: true, name: 'default', createdAt: new Date() },
    // Of a configured key nothing is shown: it may be short.
    ...(key.startsWith(apiKeyPrefix) ? { keyPrefix: key.slice(0, apiKeyPrefix.length + 8) } : {}),
  })
}

const secretBytes = 32

/** `signing-secret` is that of signed URLs and of tokens, `sealing-secret` that of what is stored encrypted, `webhook-secret` that of
 * what the process that sends webhooks opens. */
type SecretName = 'signing-secret' | 'sealing-secret' | 'webhook-secret'

/** A secret of this installation: created once, stored in the data directory with mode 0600, so that what it has made survives a restart. */
export async function secretOf(dataDir: string, name: SecretName): Promise<string> {
  const path = join(dataDir, name)
  try {
    return (await readFile(path, 'utf8')).trim()
  } catch (error) {
    if (!isCode(error, 'ENOENT')) throw error
  }
  // Written under another name, synced, then linked: a crash leaves no empty secret, and the second of two writers loses.
  const draft = `${path}.${process.pid}`
  const file = await open(draft, 'w', 0o600)
  try {
    await file.writeFile(`${randomBytes(secretBytes).toString('hex')}\n`)
    await file.sync()
  } finally {
    await file.close()
  }
  try {
    await link(draft, path)
  } catch (error) {
    if (!isCode(error, 'EEXIST')) throw error
  } finally {
    await unlink(draft)
  }
  // The name is synced too: if a loss of power took the secret back, all that it signed and sealed would be worth nothing.
  await syncFolder(dataDir)
  return (await readFile(path, 'utf8')).trim()
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}
