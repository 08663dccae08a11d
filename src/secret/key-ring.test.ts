import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { refuses } from '../lib/testing/refuses.ts'
import { KeyFile } from './key-file.ts'
import { KeyRing } from './key-ring.ts'
import { rotate } from './rotation.ts'
import { readKeys } from './sealing-key.ts'
import { authorityPurpose, purposeOf } from './secret.ts'
import type { SealedRow } from './store.ts'

const dir = await mkdtemp(join(tmpdir(), 'atoll-keys-'))
after(() => rm(dir, { recursive: true }))
let count = 0
const newPath = () => join(dir, `keys-${++count}`)
const owner = { orgId: 'org_1', purpose: 'secret ss-1 TOKEN' }
const [hexA, hexB] = ['0a'.repeat(32), '0b'.repeat(32)]
const keysOf = (...texts: string[]) => readKeys(texts) ?? []

interface Options {
  path?: string
  configured?: string[]
  used?: string[]
  now?: () => number
}

function ringOf({ path = newPath(), configured = [], used = [], now }: Options = {}) {
  const file = new KeyFile(path)
  const keysInUse = async () => used
  return new KeyRing({ configured: keysOf(...configured), file, keysInUse, ...(now && { now }) })
}

const linesOf = async (path: string) => (await readFile(path, 'utf8')).trim().split('\n')

test('sealing key: hex and base64 are read, with the same id for the same bytes', () => {
  const base64 = Buffer.from(hexA, 'hex').toString('base64')
  const [one, other, third] = keysOf(hexA, base64, ` ${base64.replace('=', '')} `)
  assert.match(one!.id, /^[0-9a-f]{8}$/)
  assert.deepEqual([other!.id, third!.id], [one!.id, one!.id])
  for (const wrong of ['', 'short', hexA.slice(1), `${hexA}0`, '!'.repeat(44)])
    assert.equal(readKeys([wrong]), undefined)
  assert.equal(readKeys([hexA, '']), undefined)
})

test('key ring: the file is made at the first use, for its owner alone, and read by the next start', async () => {
  const path = newPath()
  const ring = ringOf({ path })
  const [sealed, other] = await Promise.all([ring.seal('value', owner), ring.seal('other', owner)])
  assert.match(sealed, /^[0-9a-f]{8}\.v1\.[\w-]+$/)
  assert.equal(sealed.slice(0, 8), other.slice(0, 8))
  const { mode } = await stat(path)
  assert.equal(mode & 0o777, 0o600)
  assert.equal((await linesOf(path)).length, 1)
  assert.equal(await ringOf({ path }).open(sealed, owner), 'value')
})

test('key ring: a text opens for its owner and purpose alone', async () => {
  const ring = ringOf()
  const sealed = await ring.seal('value', owner)
  for (const options of [
    { ...owner, orgId: 'org_2' },
    { ...owner, purpose: 'secret ss-1 OTHER' },
  ])
    await refuses(ring.open(sealed, options), 'unavailable', /damaged, or was moved/)
  const end = sealed.endsWith('AA') ? 'BB' : 'AA'
  await refuses(ring.open(`${sealed.slice(0, -2)}${end}`, owner), 'unavailable')
  for (const text of ['', 'x', '.', 'v1.x']) await refuses(ring.open(text, owner), 'unavailable')
})

test('key ring: keys of the environment seal with the first, all open, and those of the file still do', async () => {
  const path = newPath()
  const ofFile = await ringOf({ path }).seal('a', owner)
  const ofB = await ringOf({ configured: [hexB] }).seal('b', owner)
  const ring = ringOf({ path, configured: [hexA, hexB] })
  assert.deepEqual([await ring.open(ofFile, owner), await ring.open(ofB, owner)], ['a', 'b'])
  assert.ok((await ring.seal('c', owner)).startsWith(keysOf(hexA)[0]!.id))
  await writeFile(path, 'broken')
  assert.equal(await ringOf({ path, configured: [hexA, hexB] }).open(ofB, owner), 'b')
})

test('key ring: a missing, another or a broken key is told with its settings, and nothing is made in its place', async () => {
  const path = newPath()
  const sealed = await ringOf({ path }).seal('value', owner)
  const kept = await readFile(path)
  const used = [sealed.slice(0, 8)]
  await refuses(ringOf({ configured: [hexA] }).open(sealed, owner), 'unavailable', /ATOLL_SECRETS_KEY nor secrets-key/)
  await rm(path)
  const ring = ringOf({ path, used })
  await refuses(ring.seal('x', owner), 'unavailable', new RegExp(`sealed with key ${used[0]}.*ATOLL_SECRETS_KEY`))
  await assert.rejects(stat(path), /ENOENT/)
  await writeFile(path, `${kept.toString()}rubbish\n`)
  await refuses(ring.open(sealed, owner), 'unavailable', /secrets-key of the data directory does not hold a key/)
  await writeFile(path, kept)
  assert.equal(await ring.open(sealed, owner), 'value')
})

/** Rows in memory. */
function rowsOf(rows: SealedRow[]) {
  return {
    sealedByOthers: async (
      of: SealedRow['of'],
      keyId: string,
      { after: from, limit }: { after: string; limit: number },
    ) =>
      rows
        .filter((row) => row.of === of && !row.sealed.startsWith(`${keyId}.`) && row.id > from)
        .toSorted((one, other) => (one.id < other.id ? -1 : 1))
        .slice(0, limit)
        .map((row) => ({ ...row })),
    reseal: async (changes: readonly { row: SealedRow; sealed: string }[]) => {
      let changed = 0
      for (const { row, sealed } of changes) {
        const found = rows.find(({ id, sealed: had }) => id === row.id && had === row.sealed)
        if (found === undefined) continue
        found.sealed = sealed
        changed += 1
      }
      return changed
    },
  }
}

test('rotation: all rows are sealed anew, and the former key goes once nothing can need it', async () => {
  const path = newPath()
  let now = 1_000_000
  const rows: SealedRow[] = []
  const file = new KeyFile(path)
  const keysInUse = async () => [...new Set(rows.map(({ sealed }) => sealed.slice(0, 8)))]
  const ring = new KeyRing({ configured: [], file, keysInUse, now: () => now })
  for (let index = 0; index < 250; index += 1) {
    const at = { orgId: 'org_1', storeId: `ss-${index % 7}`, name: `N${index}` }
    const sealed = await ring.seal(`value ${index}`, { orgId: at.orgId, purpose: purposeOf(at) })
    rows.push({ of: 'secret', id: String(index), ...at, sealed })
  }
  const sealedKey = await ring.seal('key', { orgId: 'org_2', purpose: authorityPurpose })
  rows.push({ of: 'authority', id: 'a', orgId: 'org_2', sealed: sealedKey })
  const [former = ''] = await linesOf(path)
  const lost = { of: 'secret', id: 'z', orgId: 'o', storeId: 's', name: 'N', sealed: 'deadbeef.v1.AAAA' } as const
  rows.push({ ...lost })

  const rotation = await rotate(ring, rowsOf(rows))
  assert.deepEqual(rotation, {
    keyId: keysOf((await linesOf(path))[0]!)[0]!.id,
    resealed: 251,
    unreadable: 1,
    formerKeys: 1,
  })
  assert.deepEqual((await linesOf(path))[1], former, 'a text that it has sealed may be on its way to a row')
  assert.deepEqual(rows.at(-1), lost)
  for (const { of, id, orgId, storeId = '', name = '', sealed } of rows.slice(0, -1)) {
    assert.ok(sealed.startsWith(`${rotation.keyId}.`))
    const purpose = of === 'secret' ? purposeOf({ storeId, name }) : authorityPurpose
    assert.equal(await ring.open(sealed, { orgId, purpose }), of === 'secret' ? `value ${id}` : 'key')
  }

  now += 3_600_000
  const hold = ring.hold()
  assert.equal(await ring.removeUnused(), 1, 'a backup may have rows of it')
  hold[Symbol.dispose]()
  hold[Symbol.dispose]()
  assert.equal(await ring.removeUnused(), 0)
  assert.ok(!(await linesOf(path)).includes(former))
  const [first] = rows
  assert.equal(
    await ringOf({ path }).open(first!.sealed, { orgId: 'org_1', purpose: purposeOf({ storeId: 'ss-0', name: 'N0' }) }),
    'value 0',
  )
})

test('rotation: a key that a row has is kept, and one of the environment is taken first', async () => {
  const path = newPath()
  const ofFile = await ringOf({ path }).seal('a', owner)
  const used = [ofFile.slice(0, 8)]
  const ring = ringOf({ path, used })
  await ring.renew()
  assert.equal(await ring.removeUnused(), 1)
  assert.equal(await ring.open(ofFile, owner), 'a')
  const lines = await linesOf(path)
  const rows: SealedRow[] = [{ of: 'secret', id: '1', orgId: 'org_1', storeId: 'ss-1', name: 'TOKEN', sealed: ofFile }]
  const rotation = await rotate(ringOf({ path, used, configured: [hexB, hexA] }), rowsOf(rows))
  assert.deepEqual([rotation.keyId, rotation.resealed], [keysOf(hexB)[0]!.id, 1])
  assert.deepEqual(await linesOf(path), lines, 'the file is left alone')
})
