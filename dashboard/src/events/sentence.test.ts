import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { EventInfo } from 'atoll-sdk'
import { nounOf, phraseOf } from './sentence.ts'

function eventOf(type: string, data: EventInfo['data'] = {}, more: Partial<EventInfo> = {}): EventInfo {
  return {
    ...{ number: 1, id: 'e', ts: '2026-01-15T10:30:00Z', orgId: 'org', subject: 'sb-1', cause: 'request' },
    ...{ actor: { type: 'key' }, type: type as EventInfo['type'], data },
    ...more,
  }
}

test('sentence of an event: it says what has happened, and why where nobody asked for it', () => {
  assert.equal(phraseOf(eventOf('sandbox.created', { template: 'base' })), 'was created from base')
  const idle = eventOf('sandbox.hibernated', {}, { cause: 'idle_timeout', actor: { type: 'server' } })
  assert.equal(phraseOf(idle), 'was hibernated, since nobody used it')
  const visitor = eventOf('sandbox.resumed', {}, { cause: 'preview', actor: { type: 'server' } })
  assert.equal(phraseOf(visitor), 'woke, for a visitor of a preview')
  assert.equal(phraseOf(eventOf('sandbox.stopped', { reason: 'expired' })), 'was deleted at its maximum age')
  assert.equal(phraseOf(eventOf('volume.created', { name: 'data', sizeMB: 1024 })), '“data” was made with 1 GiB')
})

test('sentence of an event: data is bounded, whatever it is', () => {
  const long = phraseOf(
    eventOf('checkpoint.failed', { name: 'n'.repeat(10_000), message: { deep: 'm'.repeat(10_000) } }),
  )
  assert.ok(long.length < 300, `${long.length} characters`)
  assert.equal(phraseOf(eventOf('sandbox.preview_url.changed')), 'declares a preview of port ?')
})

test('sentence of an event: a type of a newer server is shown by its words', () => {
  const event = eventOf('sandbox.teleported.twice')
  assert.equal(nounOf(event), 'Sandbox')
  assert.equal(phraseOf(event), 'teleported twice')
  assert.equal(nounOf(eventOf('reef.grown')), 'reef')
})
