import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Atoll, AtollError } from '../../../sdk/src/index.ts'
import type { ToolContext } from '../tool.ts'
import { sessionTravelTools } from './session-travel.ts'

const session = { id: 'session_1', userId: 'ann', activity: 'idle', previewUrl: 'http://p', sandboxId: 'sb-1' }
const usage = { inputTokens: 5, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 2, totalCostUsd: 0.5 }
const file = { path: 'a', change: 'modified', isBinary: false, addedLines: 1, removedLines: 0 }
const files = { files: [file], addedLines: 1, removedLines: 0, isCut: false }
const shownFile = { path: 'a', change: 'modified', added_lines: 1, removed_lines: 0 }
const turn = {
  ...{ messageId: 'msg_1', message: 'x'.repeat(900), parentMessageId: null, firstEvent: 1, lastEvent: 9 },
  ...{ startedAt: 't', endedAt: 't', durationMs: 1, result: 'success', checkpoint: { id: 'cp-1' }, files, usage },
  ...{ preview: null, left: true, leftEvent: 12, forks: [{ id: 'session_2' }], forksCut: false },
}
const preview = {
  ...{ checkpointId: 'cp-1', toEvent: 9, files, turnsLeft: ['msg_2'], tokensLeft: 7, queuedMessages: 1 },
  ...{ interrupts: false, processes: 'restored', processesEnded: ['sh'], restoredPrompt: 'y'.repeat(40_000) },
}
const rewound = { session, restoredPrompt: 'again', undoCheckpointId: 'cp-2', processes: 'restored' }
const place = { atEvent: 5, afterEvent: 3, exact: false, checkpointId: 'cp-1', messageId: 'msg_1' }

/** What a tool returns, and what it has asked for and sent. */
async function call(name: string, args: Record<string, unknown>) {
  const asked: string[] = []
  const sent: unknown[] = []
  const client = new Atoll({
    url: 'http://atoll.example',
    fetch: async (url, init) => {
      const { pathname, search } = new URL(String(url))
      asked.push(pathname.replace('/v1/sessions/session_1', '') + search)
      if (typeof init?.body === 'string') sent.push(JSON.parse(init.body))
      if (new Headers(init?.headers).get('accept') === 'text/x-diff') return new Response('z'.repeat(40_000))
      const isOne = typeof init?.body === 'string' && !/count|variants/.test(init.body)
      const failure = { error: { type: 'quota_exceeded', message: 'no room', code: 'quota_exceeded' } }
      const several = { sessions: [session, failure] }
      if (pathname.endsWith('/fork')) return Response.json(isOne ? { ...session, fork: place } : several)
      if (pathname.endsWith('/timeline'))
        return Response.json({ turns: [turn], nextCursor: 'msg_1', undoCheckpointId: 'cp-2' })
      if (pathname.endsWith('/rewind')) return Response.json(search === '' ? rewound : preview)
      if (pathname.endsWith('/diff')) return Response.json({ ...files, usage: { this: usage, against: null } })
      return Response.json(session)
    },
  })
  const { signal } = new AbortController()
  const context: ToolContext = { client, addresses: { api: client.url }, signal, progress: () => undefined }
  const tool = sessionTravelTools.find((one) => one.name === name)
  assert.ok(tool)
  const result = await tool.run(tool.input.parse({ session_id: 'session_1', ...args }) as never, context)
  return { result: JSON.parse(JSON.stringify(tool.output.parse(result))) as Record<string, unknown>, asked, sent }
}

test('session_timeline: a page of turns, and no more of a message than a model reads', async () => {
  const { result, asked } = await call('session_timeline', { limit: 5, all: true, cursor: 'msg_9' })
  const shown = {
    ...{ message_id: 'msg_1', message: 'x'.repeat(300), parent_message_id: null, last_event: 9, started_at: 't' },
    ...{ result: 'success', checkpoint_id: 'cp-1', added_lines: 1, removed_lines: 0, tokens: 7, cost_usd: 0.5 },
    ...{ left: true, forks: ['session_2'] },
  }
  const page = { session_id: 'session_1', turns: [shown], next_cursor: 'msg_1', undo_checkpoint_id: 'cp-2' }
  assert.deepEqual([result, asked[1]], [page, '/timeline?branch=all&limit=5&cursor=msg_9'])
  assert.equal((await call('session_timeline', {})).asked[1], '/timeline?limit=20')
})

test('session_fork: one as before, several with those that did not start, at any place', async () => {
  const one = await call('session_fork', { at: '5' })
  const shown = { session_id: 'session_1', activity: 'idle', preview_url: 'http://p' }
  assert.deepEqual([one.result, one.sent], [{ ...shown, after_event: 3 }, [{ user_id: 'ann', at: { event_id: 5 } }]])
  const two = await call('session_fork', { at: 'msg_1', messages: ['blue', 'green'] })
  assert.deepEqual(two.result, { forks: [shown, { error: 'no room' }] })
  const variants = [{ message: 'blue' }, { message: 'green' }]
  assert.deepEqual(two.sent, [{ user_id: 'ann', at: { message_id: 'msg_1' }, variants }])
  assert.deepEqual((await call('session_fork', { count: 2 })).sent, [{ user_id: 'ann', count: 2 }])
  await assert.rejects(call('session_fork', { at: 'sb-1' }), (error) => error instanceof AtollError)
})

test('session_rewind: a preview tells what would change; a rewind says how it is undone', async () => {
  const shown = await call('session_rewind', { to: 'cp-1', preview: true, what: 'machine' })
  assert.equal(shown.asked.at(-1), '/rewind?preview=true')
  assert.deepEqual(shown.result, {
    ...{ session_id: 'session_1', restored_prompt: 'y'.repeat(30_000), truncated: true, processes: 'restored' },
    preview: {
      ...{ to_event: 9, turns_left: ['msg_2'], tokens_left: 7, queued_messages: 1, interrupts: false },
      ...{ processes_ended: ['sh'], files: [shownFile] },
    },
  })
  const done = await call('session_rewind', { to: 9 })
  assert.deepEqual(done.result, {
    ...{ session_id: 'session_1', activity: 'idle', restored_prompt: 'again', processes: 'restored' },
    undo_checkpoint_id: 'cp-2',
  })
  assert.deepEqual(done.sent, [{ user_id: 'ann', to: { event_id: 9 } }])
  const hints = Object.fromEntries(sessionTravelTools.map(({ name, hints: of }) => [name, of]))
  assert.equal(hints['session_rewind']?.destructiveHint, true)
  assert.ok(hints['session_timeline']?.readOnlyHint && hints['session_diff']?.readOnlyHint)
})

test('session_diff: the files, and the beginning of the patch where it is asked for', async () => {
  const { result, asked } = await call('session_diff', { against: 'cp-1' })
  const shown = { session_id: 'session_1', files: [shownFile], added_lines: 1, removed_lines: 0, tokens: 7 }
  assert.deepEqual([result, asked[1]], [shown, '/diff?against=cp-1'])
  const long = await call('session_diff', { against: 'cp-1', patch: true })
  assert.deepEqual([(long.result['patch'] as string).length, long.result['truncated']], [30_000, true])
})
