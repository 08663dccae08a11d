import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { ServiceError } from '../../errors.ts'
import { sendFile } from './file-body.ts'

test('file: an error that comes before the first byte is an answer, though the size is known', async () => {
  const asleep = new ServiceError('unavailable', 'the sandbox hibernates')
  const body = new Readable({ read: () => setImmediate(() => body.destroy(asleep)) })
  const stat = { isDir: false, size: 10, modifiedAt: '2026-01-01T00:00:00.000Z' }
  let open = 0
  const call = {
    params: { id: 'sb-1' },
    request: { method: 'GET', headers: {} },
    // It has no method: nothing may be sent.
    reply: {},
    deps: { sandboxes: { files: { read: async () => ({ stat, body }) } } },
    limits: {},
    streams: { open: () => ((open += 1), () => (open -= 1)) },
  }
  await assert.rejects(sendFile(call as never, { orgId: 'org', path: '/a' }), asleep)
  assert.equal(open, 0)
})
