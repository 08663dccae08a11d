import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { withoutItems } from './items.ts'

test('items: those that are dropped are left out, and all others stay byte for byte', () => {
  const items = fc.array(fc.constantFrom('', ' ', 'a', 'drop', 'dropped', ' drop ', '='), { minLength: 1 })
  fc.assert(
    fc.property(items, fc.nat(5), (list, lengthMin) => {
      const isDropped = (item: string) => item.length >= lengthMin && item.includes('drop')
      const kept = list.filter((item) => !isDropped(item))
      const expected = kept.length === 0 ? undefined : kept.join(';')
      assert.equal(withoutItems(list.join(';'), ';', lengthMin, isDropped), expected)
    }),
  )
})

test('items: a list of separators alone is looked at once for each, and makes nothing', () => {
  let looks = 0
  const list = ';'.repeat(32_000)
  assert.equal(
    withoutItems(list, ';', 1, () => (looks++, false)),
    list,
  )
  assert.equal(looks, 0)
})
