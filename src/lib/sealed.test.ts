import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sealer } from './sealed.ts'

const sealer = new Sealer('a'.repeat(64))
const owner = { orgId: 'org_1', purpose: 'registry ghcr.io' }

test('sealed text: it opens for its owner and purpose alone, and with its secret alone', () => {
  const sealed = sealer.seal('pass wörd', owner)
  assert.equal(sealer.open(sealed, owner), 'pass wörd')
  assert.equal(sealer.open(sealed, { ...owner, orgId: 'org_2' }), undefined)
  assert.equal(sealer.open(sealed, { ...owner, purpose: 'registry quay.io' }), undefined)
  assert.equal(new Sealer('b'.repeat(64)).open(sealed, owner), undefined)
})

test('sealed text: two of one text differ, and neither shows it', () => {
  const [one, other] = [sealer.seal('secret-word', owner), sealer.seal('secret-word', owner)]
  assert.notEqual(one, other)
  for (const sealed of [one, other]) {
    assert.match(sealed, /^v1\.[\w-]+$/)
    assert.ok(!Buffer.from(sealed.slice(3), 'base64url').includes('secret-word'))
  }
})

test('sealed text: a changed bit, a cut one, another version and nonsense do not open', () => {
  const sealed = sealer.seal('text', owner)
  const bytes = Buffer.from(sealed.slice(3), 'base64url')
  for (const [index] of bytes.entries()) {
    const changed = Buffer.from(bytes)
    changed[index]! ^= 1
    assert.equal(sealer.open(`v1.${changed.toString('base64url')}`, owner), undefined, String(index))
  }
  for (const text of ['', 'v1', 'v1.', 'text', sealed.slice(0, 20), `v2${sealed.slice(2)}`, `${sealed}.x`])
    assert.equal(sealer.open(text, owner), undefined, text)
})
