import { isServiceError } from '../errors.ts'
import type { KeyRing } from './key-ring.ts'
import { authorityPurpose, purposeOf } from './secret.ts'
import type { SealedRow, SecretStorePort } from './store.ts'

export interface Rotation {
  /** Of the key that seals now. */
  keyId: string
  /** Rows that were sealed anew. */
  resealed: number
  /** Rows whose key is missing; they stay as they are. */
  unreadable: number
  /** Keys behind the first that the file still has. They go when nothing needs them. */
  formerKeys: number
}

type RotationStore = Pick<SecretStorePort, 'sealedByOthers' | 'reseal'>

/** Rows of one transaction, so that others use the database in between. */
const rowsAtOnce = 100
const kinds = ['secret', 'authority'] as const

/** Takes a new key, then seals all rows with it. What is read meanwhile opens by either. A repeat goes on where a crash has ended it. */
export async function rotate(ring: KeyRing, store: RotationStore): Promise<Rotation> {
  const { id: keyId } = await ring.renew()
  let resealed = 0
  let unreadable = 0
  for (const kind of kinds) {
    for (let after = ''; ;) {
      const rows = await store.sealedByOthers(kind, keyId, { after, limit: rowsAtOnce })
      const opened: { row: SealedRow; sealed: string }[] = []
      for (const row of rows) {
        const sealed = await resealedBy(ring, row)
        if (sealed === undefined) unreadable += 1
        else opened.push({ row, sealed })
      }
      resealed += await store.reseal(opened)
      const last = rows.at(-1)
      if (last === undefined || rows.length < rowsAtOnce) break
      after = last.id
    }
  }
  return { keyId, resealed, unreadable, formerKeys: await ring.removeUnused() }
}

/** Undefined when the key is missing. */
async function resealedBy(ring: KeyRing, row: SealedRow): Promise<string | undefined> {
  const { orgId, storeId = '', name = '' } = row
  const sealing = { orgId, purpose: row.of === 'secret' ? purposeOf({ storeId, name }) : authorityPurpose }
  try {
    return await ring.seal(await ring.open(row.sealed, sealing), sealing)
  } catch (error) {
    if (isServiceError(error, 'unavailable')) return undefined
    throw error
  }
}
