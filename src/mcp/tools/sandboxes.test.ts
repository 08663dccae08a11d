import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Atoll } from '../../../sdk/src/index.ts'
import type { ToolContext } from '../tool.ts'
import { sandboxTools } from './sandboxes.ts'

/** What `expose_port` tells a client that reaches the API at `api`, of a server whose previews are on the loopback. */
async function exposed(api: string): Promise<Record<string, unknown>> {
  const answers: Record<string, unknown> = {
    '/api/sandboxes/sb-1': { sandboxID: 'sb-1', status: 'running', sandboxDomain: 'preview.localhost:4100' },
    '/api/sandboxes/sb-1/ports': [{ port: 3000 }],
  }
  const client = new Atoll({ url: api, fetch: async (url) => Response.json(answers[new URL(String(url)).pathname]) })
  const context: ToolContext = {
    client,
    addresses: { api, preview: 'https://preview.localhost:4100' },
    signal: new AbortController().signal,
    progress: () => undefined,
  }
  const tool = sandboxTools.find(({ name }) => name === 'expose_port')
  assert.ok(tool)
  return await tool.run({ sandbox_id: 'sb-1', port: 3000 } as never, context)
}

test('expose_port: a client elsewhere learns that the URL is not for it, and where the port answers', async () => {
  const { url, listening, note } = await exposed('http://atoll.example.com')
  assert.deepEqual([url, listening], ['https://sb-1-p3000.preview.localhost:4100/', true])
  assert.match(
    String(note),
    /reach the port at http:\/\/atoll\.example\.com\/api\/sandboxes\/sb-1\/ports\/3000\/proxy\/$/,
  )
})

test('expose_port: a client on the machine of the server gets the URL alone', async () => {
  for (const api of ['http://127.0.0.1:4100', 'http://[::1]:4100', 'http://localhost:4100'])
    assert.equal((await exposed(api))['note'], undefined, api)
})
