import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { test } from 'node:test'
import fc from 'fast-check'
import { previewToken } from '../sandbox/input.ts'
import type { Operator } from '../organisation/index.ts'
import { makeFirstApiKey, makeOperatorKey } from '../server/credentials.ts'
import { AccessTokens } from '../session/access-token.ts'
import { Creation } from './creation.ts'
import { defined } from './defined.ts'
import { costNanoUsd, noTokens, type ModelPrice, type TokenUsage } from './model-price.ts'
import { lockName } from './process-lock.ts'
import { looksLikeCredential } from './secret.ts'

const claim = { orgId: 'org_1', key: 'k', seed: 'sealed' }
const creation = (seed = 'seed') => new Creation(claim, ['sb-1'], seed)

test('creation: the same seed derives the same ids and secrets, another seed others', () => {
  const derived = (one: Creation) => [one.id('sb-'), one.id('es-'), one.secret('a'), one.part(0).id('sb-')]
  assert.deepEqual(derived(creation()), derived(creation()))
  const all = [...derived(creation()), ...derived(creation('other'))]
  assert.equal(new Set(all).size, all.length)
  assert.match(creation().id('sb-'), /^sb-[a-z0-9]{16}$/)
  assert.match(creation().secret('a'), /^[A-Za-z0-9_-]{43}$/)
  assert.notEqual(creation().secret('a'), creation().secret('b'))
})

test('creation: a part has the claim and the made ids of the whole, and its own ids and secrets', () => {
  const whole = creation()
  const parts = Array.from({ length: 100 }, (_, index) => whole.part(index))
  assert.equal(new Set([whole, ...parts].map((one) => one.id('sb-'))).size, 101)
  assert.equal(new Set([whole, ...parts].map((one) => one.secret('a'))).size, 101)
  for (const part of parts) assert.deepEqual([part.claim, part.made, part.isPart], [claim, ['sb-1'], true])
  assert.equal(whole.isPart, false)
})

test('credential: every form that the server creates is recognised', async () => {
  const store = {
    defaultOrganisation: async () => ({ id: 'org_1', name: 'default' }),
    countDefaultKeys: async () => 0,
    insertApiKey: async () => {},
  }
  const key = await makeFirstApiKey(store as unknown as Parameters<typeof makeFirstApiKey>[0], () => {})
  const sessions = new AccessTokens(randomBytes(32).toString('hex'))
  const tokens = (['read', 'steer'] as const).map(
    (scope) => sessions.issue('session_0123456789abcdef', scope, 60).token,
  )
  let operatorKey = ''
  const operator = { hasKey: () => false, putKey: async () => {} } as unknown as Operator
  await makeOperatorKey(operator, (made) => (operatorKey = made))
  for (const text of [key ?? '', operatorKey, previewToken({ scheme: 'bearer' }, 'authConfig'), ...tokens]) {
    assert.equal(looksLikeCredential(text), true, text)
    assert.equal(looksLikeCredential(`x${text}`), false, text)
  }
})

test('credential: other texts are not recognised', () => {
  for (const text of ['', 'atoll_theme=dark', 'atoll_', 'st.read', 'mine', randomBytes(32).toString('base64url')]) {
    assert.equal(looksLikeCredential(text), false, text)
  }
})

test('defined: fields without a value are left out, null and empty ones stay', () => {
  assert.deepEqual(Object.keys(defined({ a: undefined, b: null, c: '', d: 0 })), ['b', 'c', 'd'])
})

test('process lock: a name has one holder until it is released', async () => {
  const name = `atoll-test-${randomUUID()}`
  const first = await lockName(name)
  assert.ok(first)
  assert.equal(await lockName(name), undefined)
  await first[Symbol.asyncDispose]()
  const second = await lockName(name)
  assert.ok(second)
  await second[Symbol.asyncDispose]()
})

const price: ModelPrice = {
  inputPerMillion: 3,
  cacheReadPerMillion: 0.3,
  cacheWritePerMillion: 3.75,
  outputPerMillion: 15,
}
const million = 1_000_000
const none = noTokens()

test('cost: each kind of token has its rate', () => {
  const cost = (usage: Partial<TokenUsage>) => costNanoUsd(price, { ...none, ...usage }) / 1e9
  assert.equal(cost({ inputTokens: million }), 3)
  assert.equal(cost({ inputTokens: million, cacheReadTokens: million }), 0.3)
  assert.equal(cost({ inputTokens: million, cacheWriteTokens: million }), 3.75)
  assert.equal(cost({ inputTokens: million, cacheWriteTokens: million, longCacheWriteTokens: million }), 6)
  assert.equal(cost({ outputTokens: million }), 15)
  const mixed = { inputTokens: 1000, cacheReadTokens: 700, cacheWriteTokens: 200, longCacheWriteTokens: 50 }
  assert.equal(
    costNanoUsd(price, { ...none, ...mixed, outputTokens: 10 }),
    300_000 + 210_000 + 562_500 + 300_000 + 150_000,
  )
})

test('cost: it is an integer of billionths, and never less for more tokens', () => {
  const count = fc.nat({ max: 1e9 })
  const rate = fc.double({ min: 0, max: 1000, noNaN: true })
  const prices = fc.record({
    inputPerMillion: rate,
    cacheReadPerMillion: rate,
    cacheWritePerMillion: rate,
    outputPerMillion: rate,
  })
  fc.assert(
    fc.property(prices, count, count, count, count, (some, fresh, read, write, output) => {
      const usage = { ...none, inputTokens: fresh + read + write, cacheReadTokens: read, cacheWriteTokens: write }
      const cost = costNanoUsd(some, { ...usage, outputTokens: output })
      assert.ok(Number.isInteger(cost) && cost >= 0)
      const more = { ...usage, inputTokens: usage.inputTokens + 1000, outputTokens: output + 1000 }
      assert.ok(costNanoUsd(some, more) >= cost)
    }),
  )
})
