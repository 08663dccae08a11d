import type { Kysely } from 'kysely'
import type { RegistryCredentialStore } from '../image/index.ts'
import type { Database } from './schema.ts'
import { strict } from './text.ts'

export function registryCredentialStore(db: Kysely<Database>): RegistryCredentialStore {
  const all = db.selectFrom('registryCredentials').selectAll()
  return {
    async putCredential(credential) {
      const { username: given, sealedPassword, updatedAt } = credential
      const username = strict(given, 'username')
      await db
        .insertInto('registryCredentials')
        .values({ ...credential, username })
        .onConflict((conflict) =>
          conflict.columns(['orgId', 'host']).doUpdateSet({ username, sealedPassword, updatedAt }),
        )
        .execute()
    },

    async credential(orgId, host) {
      return await all.where('orgId', '=', orgId).where('host', '=', host).executeTakeFirst()
    },

    async listCredentials(orgId) {
      return await all.where('orgId', '=', orgId).orderBy('host').execute()
    },

    async deleteCredential(orgId, host) {
      const { numDeletedRows } = await db
        .deleteFrom('registryCredentials')
        .where('orgId', '=', orgId)
        .where('host', '=', host)
        .executeTakeFirst()
      return numDeletedRows > 0n
    },
  }
}
