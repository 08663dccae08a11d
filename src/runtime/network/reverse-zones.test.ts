import assert from 'node:assert/strict'
import { test } from 'node:test'
import { reverseZones } from './reverse-zones.ts'

test('a network has as many reverse zones as it takes to name it and nothing else', () => {
  const zonesOf = (network: string) => reverseZones([network]).filter((zone) => zone.endsWith('.in-addr.arpa'))
  assert.deepEqual(zonesOf('10.0.0.0/8'), ['10.in-addr.arpa'])
  assert.deepEqual(zonesOf('192.0.2.0/24'), ['2.0.192.in-addr.arpa'])
  assert.deepEqual(zonesOf('198.18.0.0/15'), ['18.198.in-addr.arpa', '19.198.in-addr.arpa'])
  assert.deepEqual(
    zonesOf('203.0.113.240/30'),
    [240, 241, 242, 243].map((last) => `${last}.113.0.203.in-addr.arpa`),
  )
  const shared = zonesOf('100.64.0.0/10')
  assert.equal(shared.length, 64)
  assert.deepEqual([shared[0], shared[63]], ['64.100.in-addr.arpa', '127.100.in-addr.arpa'])
})
