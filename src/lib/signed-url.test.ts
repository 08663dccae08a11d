import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UrlSigner } from './signed-url.ts'

const signer = new UrlSigner('a secret')
const claims = ['download', 'sb-1', '/path'] as const
const shown = { path: '/path' }

function signed(of: readonly string[], options: { expiresInSeconds: number; bytesMax?: number }) {
  const query = new URLSearchParams(signer.sign(of, { shown, ...options }).query)
  const get = (name: string) => query.get(name) ?? undefined
  return { expires: get('expires'), signature: get('signature'), maxBytes: get('maxBytes') }
}

test('signed URL: it holds for its own claims until its time', () => {
  const fresh = signed(claims, { expiresInSeconds: 60, bytesMax: 5 })
  assert.equal(signer.faultOf(claims, fresh), undefined)
  assert.equal(signer.faultOf(['upload', 'sb-1', '/path'], fresh), 'signature_invalid')
  assert.equal(signer.faultOf([...claims, 'root'], fresh), 'signature_invalid')
  assert.equal(signer.faultOf(claims, { ...fresh, maxBytes: '6' }), 'signature_invalid')
  assert.equal(signer.faultOf(claims, signed(claims, { expiresInSeconds: -60 })), 'signature_expired')
})

test('signed URL: what is signed as one field is not read as two, nor two as one', () => {
  const { expires = '', signature } = signed([...claims, 'root'], { expiresInSeconds: -60 })
  for (const moved of [
    { expires: `root\0${expires}`, maxBytes: '' },
    { expires: `root\0${expires}`, maxBytes: undefined },
    { expires: 'root', maxBytes: `${expires}\0` },
  ]) {
    assert.equal(signer.faultOf(claims, { ...moved, signature }), 'signature_invalid')
  }
  assert.equal(signer.faultOf(['download', 'sb-1', '/path\0root'], { expires, signature }), 'signature_invalid')
})

test('signed URL: a time or a size that is no number is no signature, whoever signed it', () => {
  for (const expires of ['', 'root', '1e99', '-1', ' 1', '9'.repeat(40)]) {
    const { signature } = signed(claims, { expiresInSeconds: 60 })
    assert.equal(signer.faultOf(claims, { expires, signature }), 'signature_invalid', expires)
  }
})
