import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { FrameBoundary } from './upgrade.ts'

/** A frame as RFC 6455 § 5.2 draws it, with the shortest or a longer form of its length. */
function frame(payload: Buffer, form: 7 | 16 | 64, isMasked: boolean): Buffer {
  const mask = isMasked ? 0x80 : 0
  const length = Buffer.alloc(form === 7 ? 0 : form / 8)
  if (form === 16) length.writeUInt16BE(payload.length)
  if (form === 64) length.writeBigUInt64BE(BigInt(payload.length))
  const marker = form === 7 ? payload.length : form === 16 ? 126 : 127
  return Buffer.concat([Buffer.of(0x82, mask | marker), length, Buffer.alloc(isMasked ? 4 : 0, 0xff), payload])
}

const frames = fc.array(
  fc
    .tuple(fc.uint8Array({ maxLength: 300 }), fc.constantFrom<7 | 16 | 64>(7, 16, 64), fc.boolean())
    .map(([payload, form, isMasked]) => {
      const fits = form === 7 && payload.length > 125 ? 16 : form
      return frame(Buffer.from(payload), fits, isMasked)
    }),
  { minLength: 1, maxLength: 8 },
)

test('however the bytes are cut, only whole frames leave it between two', () => {
  fc.assert(
    fc.property(frames, fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }), (sent, cuts) => {
      const bytes = Buffer.concat(sent)
      const ends = new Set<number>([0])
      let end = 0
      for (const { length } of sent) ends.add((end += length))
      const boundary = new FrameBoundary()
      let at = 0
      for (let turn = 0; at < bytes.length; turn++) {
        const next = Math.min(bytes.length, at + (cuts[turn % cuts.length] ?? 1))
        boundary.read(bytes.subarray(at, next))
        at = next
        assert.equal(boundary.isBetween, ends.has(at))
      }
    }),
  )
})
