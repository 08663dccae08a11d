import assert from 'node:assert/strict'
import { test } from 'node:test'
import { followReadme } from './readme.ts'
import { AtollServer } from './server.ts'

test('the first chapters of the README work as written, pasted into one shell', async () => {
  await using server = await AtollServer.start()
  await followReadme(server)
  assert.deepEqual(await server.json('GET', '/api/sandboxes'), [])
  assert.deepEqual(await server.json('GET', '/api/checkpoints'), [])
})
