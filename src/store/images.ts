import { sql, type Kysely, type Selectable } from 'kysely'
import type { Image, ImageStore } from '../image/index.ts'
import { imageDeleted, imageEntries } from '../image/log-entries.ts'
import type { LogWriter } from './event-log.ts'
import { recordMade } from './idempotency.ts'
import { anyOf, cleared, ownedBy, present } from './rows.ts'
import type { Database, ImageTable } from './schema.ts'
import { lenientJson, strict, strictJson } from './text.ts'

/** Rows of one page, which ends earlier with the row that reaches its bytes. */
const pageRowsMax = 100
const pageBytes = 2 ** 20

export function imageStore(db: Kysely<Database>, writer: LogWriter): ImageStore {
  const all = db.selectFrom('images').selectAll()
  const newestFirst = all.orderBy('createdAt', 'desc').orderBy('id')

  return {
    async insertImage(image, creation) {
      const { name, manifest, failure, checkpointId, oci, ...rest } = image
      const values = {
        ...rest,
        name: name === undefined ? null : strict(name, 'name'),
        checkpointId: checkpointId ?? null,
        oci: oci === undefined ? null : lenientJson(oci),
        manifest: strictJson(manifest, 'image'),
        failure: failure === undefined ? null : lenientJson(failure),
      }
      await writer.transaction(db, async (transaction, note) => {
        await recordMade(transaction, creation, rest.id)
        await transaction.insertInto('images').values(values).execute()
        note(rest.orgId, ...imageEntries(undefined, image))
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

    async imagesOf(contentHash, orgId) {
      const rows = await newestFirst.where('contentHash', '=', contentHash).where('orgId', '=', orgId).execute()
      return rows.map(toImage)
    },

    async imagePage({ orgId, isNamed = false }, after) {
      const size = sql<number>`octet_length(manifest::text)`
      const order = sql`order by created_at desc, id`
      let rows = all
        .select(sql<number>`sum(${size}) over (${order}) - ${size}`.as('bytesBefore'))
        .orderBy('createdAt', 'desc')
        .orderBy('id')
        .limit(pageRowsMax)
      rows = orgId === undefined ? rows.where('isPublic', '=', true) : rows.where('orgId', '=', orgId)
      if (isNamed) rows = rows.where('name', 'is not', null)
      if (after !== undefined) {
        const { createdAt, id } = after
        rows = rows.where((eb) => {
          const isLaterOfSameTime = eb.and([eb('createdAt', '=', createdAt), eb('id', '>', id)])
          return eb.or([eb('createdAt', '<', createdAt), isLaterOfSameTime])
        })
      }
      const page = db.selectFrom(rows.as('page')).selectAll().where('bytesBefore', '<', pageBytes)
      const found = await page.orderBy('createdAt', 'desc').orderBy('id').execute()
      return found.map(({ bytesBefore: _bytes, ...row }) => toImage(row))
    },

    async countNamed(orgId) {
      const named = db.selectFrom('images').where('orgId', '=', orgId).where('name', 'is not', null)
      const { count } = await named.select(({ fn }) => fn.countAll<number>().as('count')).executeTakeFirstOrThrow()
      return count
    },

    async importedImage(orgId, hash) {
      const row = await newestFirst
        .where('orgId', '=', orgId)
        .where('oci', 'is not', null)
        .where(sql<string>`layer_hashes[1]`, '=', hash)
        .limit(1)
        .executeTakeFirst()
      return row && toImage(row)
    },

    async imagesIn(status) {
      return (await all.where('status', '=', status).orderBy('createdAt').orderBy('id').execute()).map(toImage)
    },

    async unusedImages(usedBefore) {
      const unnamed = db.selectFrom('images').select(['orgId', 'id']).where('name', 'is', null)
      return await unnamed.where('status', '!=', 'building').where('lastUsedAt', '<', usedBefore).execute()
    },

    async updateImage(id, { failure, oci, ...change }) {
      const set = {
        ...cleared(change),
        ...(failure === undefined ? {} : { failure: lenientJson(failure) }),
        ...(oci === undefined ? {} : { oci: lenientJson(oci) }),
      }
      const update = async (on: Kysely<Database>) => {
        const row = await on.updateTable('images').set(set).where('id', '=', id).returningAll().executeTakeFirst()
        return row && toImage(row)
      }
      if (change.status === undefined && change.isPublic === undefined) return await update(db)
      return await writer.transaction(db, async (transaction, note) => {
        const states = transaction.selectFrom('images').select(['status', 'isPublic']).where('id', '=', id)
        const before = await states.forUpdate().executeTakeFirst()
        const image = await update(transaction)
        if (image !== undefined && before !== undefined) note(image.orgId, ...imageEntries(before, image))
        return image
      })
    },

    async deleteImage(id) {
      return await writer.transaction(db, async (transaction, note) => {
        const row = await transaction.deleteFrom('images').where('id', '=', id).returningAll().executeTakeFirst()
        if (row !== undefined) note(row.orgId, imageDeleted(toImage(row)))
        return row !== undefined
      })
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
