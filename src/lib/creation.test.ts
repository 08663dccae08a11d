import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Creation } from './creation.ts'

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
