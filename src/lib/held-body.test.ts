import assert from 'node:assert/strict'
import { test } from 'node:test'
import { BodyBudget } from './held-body.ts'

test('bodies of all requests together have a bound, which is given back', () => {
  const budget = new BodyBudget(100)
  const one = budget.open()
  assert.ok(one.take(60))
  {
    using two = budget.open()
    assert.ok(two.take(40))
    assert.ok(!two.take(1))
  }
  assert.ok(one.take(40))
  one[Symbol.dispose]()
  one[Symbol.dispose]()
  assert.ok(budget.open().take(100))
})
