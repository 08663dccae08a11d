import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Layout } from './layout.ts'
import { Subnet } from './subnet.ts'

/** IFNAMSIZ without the NUL. */
const linkCharsMax = 15

test('every slot of the largest subnet has a link of its own, whose name the kernel takes', () => {
  const subnet = new Subnet('10.0.0.0/12')
  const layout = new Layout('89abcdef', subnet)
  const links = [1, 35, 36, 1_024, 46_655, subnet.slots - 1, subnet.slots].map((slot) => layout.port(slot).link)
  assert.equal(new Set(links).size, links.length)
  for (const link of links) {
    assert.ok(link.length <= linkCharsMax, link)
    assert.ok(link.startsWith(layout.gatewayLink) && layout.isPortLink(link), link)
  }
  assert.ok(!layout.isPortLink(layout.gatewayLink))
  assert.equal(layout.port(subnet.slots).address, '10.15.255.254')
})
