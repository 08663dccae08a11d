import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Message, TurnInfo } from 'atoll-sdk'
import { branchTo, messagesTo, placesOf } from './turns.ts'

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString()

function turn(messageId: string, parentMessageId: string | null, second: number, left = false): TurnInfo {
  const usage = { inputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 0 }
  return {
    ...{ messageId, parentMessageId, message: messageId, firstEvent: second, lastEvent: second + 1, left },
    ...{ startedAt: at(second), endedAt: at(second + 5), durationMs: 5000, result: 'success', checkpoint: null },
    ...{ files: null, usage, preview: null, forks: [], forksCut: false },
  }
}

const said = (id: string, second: number, left = false): Message => ({
  ...{ id, role: 'user', content: id, state: 'consumed', createdAt: at(second) },
  ...(left ? { left: true as const } : {}),
})
const answer = (id: string, second: number, left = false): Message => ({
  ...{ id, role: 'assistant', content: id, createdAt: at(second) },
  ...(left ? { left: true as const } : {}),
})
const idsOf = (messages: readonly Message[]) => messages.map(({ id }) => id)

// b was left by a rewind to a; c was sent again.
const turns = [turn('a', null, 10), turn('b', 'a', 20, true), turn('c', 'a', 30), turn('d', 'c', 40)]
const messages = [
  ...[said('a', 9), answer('a2', 15), said('b', 16, true), answer('b2', 25, true), said('c', 29), said('d', 31)],
  ...[answer('c2', 35), answer('d2', 45)],
]

test('a branch: a turn and those before it, without what a rewind has left', () => {
  assert.deepEqual([...branchTo(turns, 'd')], ['d', 'c', 'a'])
  assert.deepEqual([...branchTo(turns, 'b')], ['b', 'a'])
  assert.deepEqual([...branchTo(turns, 'unknown')], [])
})

test('the transcript to a turn: messages and answers of its branch, also where a message came while another turn ran', () => {
  const [, b, c, d] = turns
  assert.ok(b && c && d)
  assert.deepEqual(idsOf(messagesTo(messages, turns, b)), ['a', 'a2', 'b', 'b2'])
  assert.deepEqual(idsOf(messagesTo(messages, turns, c)), ['a', 'a2', 'c', 'c2'])
  assert.deepEqual(idsOf(messagesTo(messages, turns, d)), ['a', 'a2', 'c', 'd', 'c2', 'd2'])
})

test('the transcript of a fork, or of turns whose beginning is not read: what came before stands first', () => {
  const d = turns[3]
  assert.ok(d)
  const all = [said('source', 1), answer('source2', 2), ...messages]
  assert.deepEqual(idsOf(messagesTo(all, [d], d)), ['source', 'source2', 'a', 'a2', 'c', 'd', 'c2', 'd2'])
})

test('the transcript of a turn that came with a fork: its messages are older than the turn', () => {
  const d = turns[3]
  assert.ok(d)
  const adopted = { ...turn('e', 'd', 60), endedAt: at(60) }
  const all = [...messages, said('e', 51), answer('e2', 55)]
  assert.deepEqual(idsOf(messagesTo(all, [...turns, adopted], adopted)).slice(-2), ['e', 'e2'])
  assert.deepEqual(idsOf(messagesTo(all, [...turns, adopted], d)).at(-1), 'd2')
})

test('numbers of turns: by their branch, and by the messages before those that are read', () => {
  assert.deepEqual([...placesOf(turns, messages).values()], [1, 2, 2, 3])
  assert.deepEqual([...placesOf(turns.slice(2), messages).values()], [2, 3])
})
