import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Atoll } from '../../../sdk/src/index.ts'
import type { ToolContext } from '../tool.ts'
import { treeTools } from './trees.ts'

const file = { path: 'a', change: 'modified', isBinary: false, addedLines: 1, removedLines: 0 }
const compared = { from: 'cp-1', to: null, folder: '/workspace', addedLines: 1, removedLines: 0, isCut: false }
const node = { id: 'sb-1', type: 'sandbox', parentId: null, status: 'running', createdAt: '2026-01-15T10:30:00Z' }

/** What a tool returns, and what it has asked for. */
async function call(name: string, args: Record<string, unknown>, { files = [file], nodes = [node], patch = 'x' } = {}) {
  const asked: string[] = []
  const client = new Atoll({
    url: 'http://atoll.example',
    fetch: async (url, init) => {
      const { pathname, search } = new URL(String(url))
      asked.push(pathname + search)
      if (pathname.endsWith('/tree')) return Response.json({ sandboxId: 'sb-1', rootId: 'sb-1', nodes, isCut: false })
      if (new Headers(init?.headers).get('accept') === 'text/x-diff') return new Response(patch)
      if (pathname.endsWith('/diff')) return Response.json({ ...compared, files })
      return Response.json({ sandboxID: 'sb-1', sandboxDomain: 'x' })
    },
  })
  const { signal } = new AbortController()
  const context: ToolContext = { client, addresses: { api: client.url }, signal, progress: () => undefined }
  const tool = treeTools.find((one) => one.name === name)
  assert.ok(tool)
  const result = await tool.run(tool.input.parse({ sandbox_id: 'sb-1', ...args }) as never, context)
  return { result: JSON.parse(JSON.stringify(tool.output.parse(result))) as Record<string, unknown>, asked }
}

test('sandbox_tree: the nodes, in snake case, and no more than a model reads', async () => {
  const { parentId: parent_id, createdAt: created_at, ...rest } = node
  const { result } = await call('sandbox_tree', {})
  assert.deepEqual(result, { sandbox_id: 'sb-1', root_id: 'sb-1', nodes: [{ ...rest, parent_id, created_at }] })
  const long = await call('sandbox_tree', {}, { nodes: Array.from({ length: 201 }, () => node) })
  assert.deepEqual([(long.result['nodes'] as object[]).length, long.result['truncated']], [200, true])
})

test('sandbox_diff: the files, and the beginning of the patch where it is asked for', async () => {
  const { result, asked } = await call('sandbox_diff', { from: 'v1', to: 'v2', folder: '/etc' })
  const shown = { path: 'a', change: 'modified', added_lines: 1, removed_lines: 0 }
  assert.deepEqual(result, { sandbox_id: 'sb-1', files: [shown], added_lines: 1, removed_lines: 0 })
  assert.equal(asked.at(-1), '/api/sandboxes/sb-1/diff?from=v1&to=v2&folder=%2Fetc')
  assert.equal((await call('sandbox_diff', { from: 'v1', patch: true })).result['patch'], 'x')
  const long = await call('sandbox_diff', { from: 'v1', patch: true }, { patch: 'y'.repeat(40_000) })
  assert.deepEqual([(long.result['patch'] as string).length, long.result['truncated']], [30_000, true])
  const many = await call('sandbox_diff', { from: 'v1' }, { files: Array.from({ length: 201 }, () => file) })
  assert.equal(many.result['truncated'], true)
})
