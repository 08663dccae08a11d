import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { Subnet } from './subnet.ts'

test('a subnet gives the gateway its first address and every sandbox one of its own', () => {
  const subnet = new Subnet('10.200.0.0/28')
  assert.equal(subnet.gatewayAddress, '10.200.0.1')
  assert.equal(subnet.slots, 13)
  assert.equal(subnet.address(1), '10.200.0.2')
  assert.equal(subnet.address(subnet.slots), '10.200.0.14')
  assert.equal(new Subnet('10.200.0.0/16').address(256), '10.200.1.1')
})

test('what is no IPv4 network of a usable size is refused', () => {
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

test('networks that share an address meet, whichever of the two is larger', () => {
  const subnet = new Subnet('10.200.16.0/20')
  for (const cidr of ['10.200.16.1/20', '10.200.31.255/32', '10.200.0.7/16', '0.0.0.0/0'])
    assert.ok(subnet.meets(cidr), cidr)
  for (const cidr of ['10.200.32.1/20', '10.200.15.255/32', '192.0.2.2/24']) assert.ok(!subnet.meets(cidr), cidr)
})
