import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { isServiceError } from '../errors.ts'
import { decodeCursor, encodeCursor } from './rows.ts'

test('cursor: it decodes to its position', () => {
  const position = { createdAt: new Date('2026-01-15T10:30:00.123Z'), id: 'session_0a1b2c3d4e5f' }
  assert.deepEqual(decodeCursor(encodeCursor(position)), position)
  assert.match(encodeCursor(position), /^[\w-]+$/)
})

test('cursor: any other text is refused or decodes to a complete position', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.base64String(),
        fc.string().map((text) => btoa(encodeURI(text))),
      ),
      (text) => {
        try {
          const { createdAt, id } = decodeCursor(text)
          assert.ok(createdAt.toISOString() && id)
        } catch (error) {
          assert.ok(isServiceError(error, 'invalid_request') && error.message.includes('cursor'))
        }
      },
    ),
  )
})
