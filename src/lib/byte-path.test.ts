import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { bytesOfPath, pathOfBase64, pathOfBytes } from './byte-path.ts'

test('byte path: each path of bytes has one string, and the bytes come back', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      assert.deepEqual(bytesOfPath(pathOfBytes(bytes)), Buffer.from(bytes))
      assert.equal(pathOfBase64(Buffer.from(bytes).toString('base64')), pathOfBytes(bytes))
      assert.equal(pathOfBase64(Buffer.from(bytes).toString('base64url')), pathOfBytes(bytes))
    }),
  )
  assert.equal(pathOfBytes(Buffer.from('/ä\n')), '/ä\n')
  assert.notEqual(pathOfBytes(Buffer.from([0x2f, 0xff])), pathOfBytes(Buffer.from([0x2f, 0xfe])))
})

test('byte path: what is no path is none', () => {
  assert.equal(bytesOfPath('/\ud800'), undefined)
  assert.equal(bytesOfPath('/ä\udcff'), undefined)
  for (const text of ['L2E!', 'L2 E', 'L=2E', 'L2E===']) assert.equal(pathOfBase64(text), undefined, text)
})
