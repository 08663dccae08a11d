import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { reverseZones } from './dns.ts'
import { Layout } from './layout.ts'
import {
  connectionBounds,
  connectionGroups,
  endedSeconds,
  ownConnections,
  ownConnectionsBurst,
  ownConnectionsPerSecond,
} from './rules.ts'
import { Subnet } from './subnet.ts'

/** IFNAMSIZ without the NUL. */
const linkCharsMax = 15

test('layout: every slot of the largest subnet has its own link name, which the kernel accepts', () => {
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

test('subnet: the gateway has the first address, every sandbox its own', () => {
  const subnet = new Subnet('10.200.0.0/28')
  assert.equal(subnet.gatewayAddress, '10.200.0.1')
  assert.equal(subnet.slots, 13)
  assert.equal(subnet.address(1), '10.200.0.2')
  assert.equal(subnet.address(subnet.slots), '10.200.0.14')
  assert.equal(new Subnet('10.200.0.0/16').address(256), '10.200.1.1')
  const slots = ['10.200.0.2', '10.200.0.14', '10.200.0.1', '10.200.0.15', '10.200.1.2', '', '::ffff:10.200.0.2']
  const of = slots.map((address) => subnet.slotOf(address))
  assert.deepEqual(of, [1, 13, undefined, undefined, undefined, undefined, undefined])
})

test('subnet: anything but an IPv4 network of a usable size is refused', () => {
  for (const cidr of [
    '',
    '10.200.0.0',
    '10.200.0.0/30',
    '10.0.0.0/8',
    '10.200.0.1/16',
    '10.300.0.0/16',
    '::1/64',
    ' 10.200.0.0/16',
  ]) {
    assert.throws(
      () => new Subnet(cidr),
      (error) => isServiceError(error, 'invalid_request'),
      cidr,
    )
  }
})

test('subnet: networks that share an address meet, whichever of the two is larger', () => {
  const subnet = new Subnet('10.200.16.0/20')
  for (const cidr of ['10.200.16.1/20', '10.200.31.255/32', '10.200.0.7/16', '0.0.0.0/0'])
    assert.ok(subnet.meets(cidr), cidr)
  for (const cidr of ['10.200.32.1/20', '10.200.15.255/32', '192.0.2.2/24']) assert.ok(!subnet.meets(cidr), cidr)
})

test('connection bounds: a sandbox for every two hundred entries leaves the host a quarter of the table', () => {
  for (const size of [8_192, 65_536, 262_144, 2_097_152]) {
    const { perGroup, perSecond } = connectionBounds(size)
    const open = connectionGroups * perGroup
    const ended = perSecond * (endedSeconds + 1)
    const own = ownConnections + ownConnectionsBurst + ownConnectionsPerSecond * endedSeconds
    assert.ok(open + ended + Math.floor(size / 200) * own <= 0.75 * size, String(size))
  }
})

test('connection bounds: a few sandboxes cannot take the share of all', () => {
  for (const size of [8_192, 65_536, 262_144, 2_097_152]) {
    const { perSandbox, perSandboxPerSecond, perGroup, perSecond } = connectionBounds(size)
    assert.ok(perSandbox <= perGroup / 2 && perSandboxPerSecond <= perSecond / connectionGroups, String(size))
    assert.ok(perSandbox > ownConnections, String(size))
  }
})

test('connection bounds: a table without a limit, or of unknown size, counts as one of the usual size', () => {
  assert.deepEqual(connectionBounds(0), connectionBounds(262_144))
  assert.deepEqual(connectionBounds(undefined), connectionBounds(262_144))
})

test('reverse zones: they cover exactly the network', () => {
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
