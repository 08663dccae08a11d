/** Previews that refuse: a wake that fails, a body that still comes. */
import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import type { ErrorCode } from '../../src/errors.ts'
import { exchange } from '../support/api-client.ts'
import { useWorld } from '../support/use-world.ts'
import { previewHost } from '../support/world.ts'

let host: string
const world = useWorld({}, async () => {
  host = `${await world.sandbox()}-p3000.${previewHost}`
})

test('preview wake: a refused wake is answered with the status of its error, and is no fault of the server', async () => {
  const { previews } = world.sandboxes
  const { dial } = previews
  const cases: [code: ErrorCode, status: number, retryAfter?: string][] = [
    ['conflict', 409],
    ['patch_failed', 422],
    ['rate_limited', 429, '13'],
    ['unavailable', 503, '1'],
    ['no_capacity', 503, '1'],
    ['full_checkpoint_unavailable', 503, '1'],
  ]
  try {
    for (const [code, status, retryAfter] of cases) {
      previews.dial = () =>
        Promise.reject(
          new ServiceError(code, 'what only the owner may know', {
            details: { retryAfterSeconds: 12.5, stderr: 'no' },
          }),
        )
      const json = await exchange(world.origin, { headers: { host } })
      assert.deepEqual([json.status, json.body.code, json.headers['retry-after']], [status, code, retryAfter])
      const page = await exchange(world.origin, { headers: { host, accept: 'text/html' } })
      assert.equal(page.status, status)
      for (const { text } of [json, page]) assert.doesNotMatch(text, /only the owner|stderr/)
    }
  } finally {
    previews.dial = dial
  }
  const errors = world.logs.filter(({ level }) => level === 'error')
  assert.deepEqual(errors, [])
})

test('preview wake: a preview that refuses while the body still comes is heard by a client that sends all of it first', async () => {
  const bytes = 32 * 1024 * 1024
  const socket = connect({ port: world.port, host: '127.0.0.1', allowHalfOpen: true })
  socket.pause()
  const sent = Promise.withResolvers<void>()
  socket.on('error', sent.reject)
  socket.write(`POST / HTTP/1.1\r\nHost: sb-unknown00000-p80.${previewHost}\r\nContent-Length: ${bytes}\r\n\r\n`)
  socket.write(Buffer.alloc(bytes, 'x'), () => sent.resolve())
  await sent.promise
  const told = (await socket.toArray()).map(String).join('')
  assert.match(told, /^HTTP\/1\.1 404 /)
  socket.end()
})
