import { sql, type Kysely, type Selectable } from 'kysely'
import type { Image, ImageStore } from '../image/index.ts'
import { recordMade } from './idempotency.ts'
import { anyOf, cleared, ownedBy, present } from './rows.ts'
import type { Database, ImageTable } from './schema.ts'
import { lenientJson, strict, strictJson } from './text.ts'

export function imageStore(db: Kysely<Database>): ImageStore {
  const all = db.selectFrom('images').selectAll()
  const newestFirst = all.orderBy('createdAt', 'desc').orderBy('id')

  return {
    async insertImage({ name, manifest, failure, checkpointId, oci, ...rest }, creation) {
      const values = {
        ...rest,
        name: name === undefined ? null : strict(name, 'name'),
        checkpointId: checkpointId ?? null,
        oci: oci === undefined ? null : lenientJson(oci),
        manifest: strictJson(manifest, 'image'),
        failure: failure === undefined ? null : lenientJson(failure),
      }
      await db.transaction().execute(async (transaction) => {
        await recordMade(transaction, creation, rest.id)
        await transaction.insertInto('images').values(values).execute()
      })
    },

    async image(id, orgId) {
      const row = await all.where('id', '=', id).where(ownedBy(orgId)).executeTakeFirst()
      return row && toImage(row)
    },

    async imageNamed(name, orgId) {
      const row = await all.where('name', '=', name).where('orgId', '=', orgId).executeTakeFirst()
      return row && toImage(row)
    },

    async publicImageNamed(name) {
      const row = await newestFirst.where('name', '=', name).where('isPublic', '=', true).executeTakeFirst()
      return row && toImage(row)
    },

    async publicImages() {
      return (await newestFirst.where('isPublic', '=', true).execute()).map(toImage)
    },

    async imagesOf(contentHash, orgId) {
      const rows = await newestFirst.where('contentHash', '=', contentHash).where('orgId', '=', orgId).execute()
      return rows.map(toImage)
    },

    async listImages(orgId) {
      return (await newestFirst.where('orgId', '=', orgId).execute()).map(toImage)
    },

    async imagesIn(status) {
      return (await all.where('status', '=', status).orderBy('createdAt').orderBy('id').execute()).map(toImage)
    },

    async unusedImages(usedBefore) {
      const unused = all
        .where('name', 'is', null)
        .where('status', '!=', 'building')
        .where('lastUsedAt', '<', usedBefore)
      return (await unused.execute()).map(toImage)
    },

    async updateImage(id, { failure, oci, ...change }) {
      const set = {
        ...cleared(change),
        ...(failure === undefined ? {} : { failure: lenientJson(failure) }),
        ...(oci === undefined ? {} : { oci: lenientJson(oci) }),
      }
      const row = await db.updateTable('images').set(set).where('id', '=', id).returningAll().executeTakeFirst()
      return row && toImage(row)
    },

    async deleteImage(id) {
      const { numDeletedRows } = await db.deleteFrom('images').where('id', '=', id).executeTakeFirstOrThrow()
      return numDeletedRows > 0n
    },

    async putLayer(layer) {
      const { checkpointId } = layer
      await db
        .insertInto('imageLayers')
        .values(layer)
        .onConflict((conflict) => conflict.columns(['orgId', 'hash']).doUpdateSet({ checkpointId }))
        .execute()
    },

    async layers(orgId, hashes) {
      return await db
        .selectFrom('imageLayers')
        .selectAll()
        .where('orgId', '=', orgId)
        .where('hash', '=', anyOf(hashes))
        .execute()
    },

    async deleteLayer(orgId, hash) {
      await db.deleteFrom('imageLayers').where('orgId', '=', orgId).where('hash', '=', hash).execute()
    },

    async deleteUnusedLayers(orgId) {
      return await db
        .deleteFrom('imageLayers')
        .where(ownedBy(orgId))
        .where(sql<boolean>`not exists (select from images
          where images.org_id = image_layers.org_id and image_layers.hash = any(images.layer_hashes))`)
        .returningAll()
        .execute()
    },

    async imageCheckpointIds() {
      const ofImages = db.selectFrom('images').select('checkpointId').where('checkpointId', 'is not', null)
      const rows = await ofImages.union(db.selectFrom('imageLayers').select('checkpointId')).execute()
      return rows.flatMap(({ checkpointId }) => checkpointId ?? [])
    },
  }
}

function toImage(row: Selectable<ImageTable>): Image {
  return present(row)
}
