import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Atoll } from '../../../sdk/src/index.ts'
import type { ToolContext } from '../tool.ts'
import { egressTools } from './egress.ts'

const policy = { mode: 'list', allow: [], deny: [], logOnly: false }
const layer = {
  source: 'creation',
  ...policy,
  allow: [{ id: 'creation.allow[0]', host: 'a.example', ports: [[443, 443]] }],
}
const secrets = [{ name: 'TOKEN', hosts: ['a.example'], isUsed: true }]
const entry = { number: 3, decision: 'denied', port: 443, sentBytes: 1, receivedBytes: 2, durationMs: 4 }
const shown = {
  sandbox_id: 'sb-1',
  state: 'confined',
  layers: [{ source: 'creation', mode: 'list', allow: layer.allow, deny: [], log_only: false }],
  secrets: [{ name: 'TOKEN', hosts: ['a.example'], is_used: true }],
}

/** What a tool returns, and what it has written. */
async function call(name: string, args: Record<string, unknown>) {
  const asked: string[] = []
  const written: unknown[] = []
  const client = new Atoll({
    url: 'http://atoll.example',
    fetch: async (url, init) => {
      const { pathname, search } = new URL(String(url))
      asked.push(pathname + search)
      if (typeof init?.body === 'string') written.push(JSON.parse(init.body))
      if (pathname.endsWith('/log')) return Response.json({ data: [entry] })
      if (pathname.endsWith('/egress')) return Response.json({ state: 'confined', policy, layers: [layer], secrets })
      return Response.json({ sandboxID: 'sb-1', sandboxDomain: 'x' })
    },
  })
  const { signal } = new AbortController()
  const context: ToolContext = { client, addresses: { api: client.url }, signal, progress: () => undefined }
  const tool = egressTools.find((one) => one.name === name)
  assert.ok(tool)
  const result = await tool.run(tool.input.parse({ sandbox_id: 'sb-1', ...args }) as never, context)
  return { result: tool.output.parse(result), asked, written }
}

test('egress tools: what may be reached is read, replaced, widened and narrowed', async () => {
  assert.deepEqual(await call('egress_get', {}), {
    result: shown,
    asked: ['/api/sandboxes/sb-1', '/api/sandboxes/sb-1/egress'],
    written: [],
  })
  const set = await call('egress_set', { mode: 'list', allow: ['a.example:443'], log_only: true })
  assert.deepEqual([set.result, set.written], [shown, [{ mode: 'list', allow: ['a.example:443'], logOnly: true }]])
  const rule = { host: 'b.example', methods: ['GET'] }
  assert.deepEqual((await call('egress_allow', { rules: [rule] })).written, [{ ...policy, allow: [rule] }])
  assert.deepEqual((await call('egress_deny', { rules: ['b.example'] })).written, [{ ...policy, deny: ['b.example'] }])
})

test('egress_log: the newest entries, or those after a number', async () => {
  const { result, asked } = await call('egress_log', { decision: 'denied' })
  const { sentBytes: sent_bytes, receivedBytes: received_bytes, durationMs: duration_ms, ...rest } = entry
  assert.deepEqual(result, { sandbox_id: 'sb-1', entries: [{ ...rest, sent_bytes, received_bytes, duration_ms }] })
  assert.equal(asked[1], '/api/sandboxes/sb-1/egress/log?after=newest&limit=100&decision=denied')
  const after = await call('egress_log', { after: 7 })
  assert.equal(after.asked[1], '/api/sandboxes/sb-1/egress/log?after=7&limit=100')
})
