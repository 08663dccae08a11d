import { sql, type Kysely, type Selectable, type Transaction } from 'kysely'
import type { Image, ImageStore } from '../image/index.ts'
import { imageDeleted, imageEntries } from '../image/log-entries.ts'
import type { LogWriter, Note } from './event-log.ts'
import { recordMade } from './idempotency.ts'
import { anyOf, cleared, ownedBy, present } from './rows.ts'
import type { Database, ImageTable } from './schema.ts'
import { lenientJson, strict, strictJson } from './text.ts'

/** Rows of one page, which ends earlier with the row that reaches its bytes. */
const pageRowsMax = 100
const pageBytes = 2 ** 20

export function imageStore(db: Kysely<Database>, writer: LogWriter): ImageStore {
  const sizeBytes = sql<number | null>`(select size_bytes from checkpoints where id = images.checkpoint_id)`.as(
    'sizeBytes',
  )
  const all = db.selectFrom('images').selectAll().select(sizeBytes)
  const newestFirst = all.orderBy('createdAt', 'desc').orderBy('id')

  return {
    async insertImage(image, creation) {
      const { name, replaces, manifest, failure, checkpointId, oci, config, sizeBytes: _read, ...rest } = image
      const values = {
        ...rest,
        name: name === undefined ? null : strict(name, 'name'),
        replaces: replaces === undefined ? null : strict(replaces, 'name'),
        checkpointId: checkpointId ?? null,
        config: config === undefined ? null : strictJson(config, 'image'),
        oci: oci === undefined ? null : lenientJson(oci),
        manifest: strictJson(manifest, 'image'),
        failure: failure === undefined ? null : lenientJson(failure),
      }
      return await writer.transaction(db, async (transaction, note) => {
        await recordMade(transaction, creation, rest.id)
        if (name !== undefined) await lockNames(transaction, rest.orgId)
        const taken =
          image.status === 'ready' && replaces !== undefined
            ? await takeName(transaction, note, { orgId: rest.orgId, name: replaces })
            : {}
        const inserted = transaction.insertInto('images').values({ ...values, ...taken })
        const made = toImage(await inserted.returningAll().returning(sizeBytes).executeTakeFirstOrThrow())
        note(rest.orgId, ...imageEntries(undefined, made))
        return made
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

    async replacementsOf(name, orgId) {
      return (await all.where('replaces', '=', name).where('orgId', '=', orgId).execute()).map(toImage)
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

    async updateImage(id, { failure, oci, config, ...change }) {
      const set = {
        ...cleared(change),
        ...(config === undefined ? {} : { config: strictJson(config, 'image') }),
        ...(failure === undefined ? {} : { failure: lenientJson(failure) }),
        ...(oci === undefined ? {} : { oci: lenientJson(oci) }),
      }
      const update = async (on: Kysely<Database>, taken: object = {}) => {
        const updated = on
          .updateTable('images')
          .set({ ...set, ...taken })
          .where('id', '=', id)
        const row = await updated.returningAll().returning(sizeBytes).executeTakeFirst()
        return row && toImage(row)
      }
      if (change.status === undefined && change.isPublic === undefined) return await update(db)
      return await writer.transaction(db, async (transaction, note) => {
        const states = transaction.selectFrom('images').select(['orgId', 'replaces', 'status', 'isPublic'])
        const before = await states.where('id', '=', id).forUpdate().executeTakeFirst()
        if (before === undefined) return undefined
        const { orgId, replaces: name } = before
        const isTaker = change.status === 'ready' && name !== null
        const image = await update(transaction, isTaker ? await takeName(transaction, note, { orgId, name }) : {})
        if (image !== undefined) note(orgId, ...imageEntries(before, image))
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

    async addLayerHashes(orgId, contentHash, hashes) {
      const together = sql<
        string[]
      >`(select coalesce(array_agg(distinct hash), '{}') from unnest(layer_hashes || ${sql.val([...hashes])}::text[]) hash)`
      await db
        .updateTable('images')
        .set({ layerHashes: together })
        .where('orgId', '=', orgId)
        .where('contentHash', '=', contentHash)
        .where('status', '=', 'building')
        .execute()
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

/** Makes those wait who give a name of this organisation to another image, until the transaction ends. */
async function lockNames(transaction: Transaction<Database>, orgId: string): Promise<void> {
  await transaction.selectFrom('organisations').select('id').where('id', '=', orgId).forNoKeyUpdate().execute()
}

/**
 * Takes a name from the image that has it, and returns what the taker gets of it. One that is still being built, since its name was free when
 * it began, takes the name back when it ends: the last end counts.
 */
async function takeName(
  transaction: Transaction<Database>,
  note: Note,
  { orgId, name }: { orgId: string; name: string },
): Promise<{ name: string; replaces: null; isPublic: boolean }> {
  await lockNames(transaction, orgId)
  const holders = transaction.selectFrom('images').selectAll().where('orgId', '=', orgId).where('name', '=', name)
  const holder = await holders.forUpdate().executeTakeFirst()
  if (holder !== undefined) {
    const replaces = holder.status === 'building' ? name : null
    const lost = { name: null, replaces, isPublic: false }
    await transaction.updateTable('images').set(lost).where('id', '=', holder.id).execute()
    note(orgId, ...imageEntries(holder, toImage({ ...holder, ...lost })))
  }
  return { name, replaces: null, isPublic: holder?.isPublic ?? false }
}

function toImage(row: Selectable<ImageTable> & { sizeBytes?: number | null }): Image {
  return present(row)
}
