import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addressFault, readTargets, urlFault } from './target.ts'

const privateAddresses = [
  ...['0.0.0.0', '0.1.2.3', '10.0.0.1', '100.64.0.1', '100.127.255.255', '127.0.0.1', '127.255.255.255'],
  ...['169.254.169.254', '172.16.0.1', '172.31.255.255', '192.0.0.1', '192.0.2.1', '192.168.1.1', '198.18.0.1'],
  ...['198.19.255.255', '198.51.100.1', '203.0.113.1', '224.0.0.1', '240.0.0.1', '255.255.255.255', '192.88.99.1'],
  ...['::', '::1', '::7f00:1', '::ffff:127.0.0.1', '::ffff:a9fe:a9fe', '::127.0.0.1', '64:ff9b::7f00:1', 'fe80::1'],
  ...['fc00::1', 'fd12:3456::1', 'ff02::1', '2001::1', '2001:db8::1', '2002:7f00:1::', '2002:a00:1::1', 'fec0::1'],
  ...['100::1', '64:ff9b:1::1', '3fff::1', '2001:10::1', '::ffff:0:127.0.0.1', 'fe80::1%eth0', '5f00::1'],
]

const publicAddresses = [
  ...['1.1.1.1', '8.8.8.8', '100.63.255.255', '100.128.0.1', '172.15.0.1', '172.32.0.1', '192.169.0.1', '198.20.0.1'],
  ...['223.255.255.255', '2606:4700::1111', '2a00:1450:4001::200e', '::ffff:8.8.8.8', '64:ff9b::808:808'],
]

test('target: no address of a private, local, reserved or wrapped kind is dialled', () => {
  for (const address of privateAddresses) assert.ok(addressFault(address), address)
})

test('target: public addresses are dialled', () => {
  for (const address of publicAddresses) assert.equal(addressFault(address), undefined, address)
})

test('target: a URL to an address that is not public is refused in every spelling', () => {
  for (const host of [
    ...['localhost', 'LOCALHOST', 'a.localhost', 'localhost.', '0', '127.1', '127.0.1', '2130706433', '0x7f000001'],
    ...[
      '0x7f.1',
      '0177.0.0.1',
      '017700000001',
      '[::1]',
      '[::]',
      '[::ffff:127.0.0.1]',
      '[::ffff:7f00:1]',
      '[0:0:0:0:0:0:0:1]',
    ],
    ...['169.254.169.254', '2852039166', '0xa9fea9fe', '127。0。0。1', '①②⑦.⓪.⓪.①', 'metadata', 'printer.local'],
    ...[
      'metadata.google.internal',
      'router.home.arpa',
      '10.0.0.1.',
      '%31%32%37.0.0.1',
      '[fe80::1]',
      '[64:ff9b::7f00:1]',
    ],
  ]) {
    const fault = urlFault(`https://${host}/hook`)
    assert.ok(fault, host)
  }
})

test('target: what is no URL over TLS to a listed port is refused with its reason', () => {
  const refused: [string, RegExp][] = [
    ['http://example.com/', /https/],
    ['ftp://example.com/', /https/],
    ['javascript:alert(1)', /https/],
    ['example.com', /https/],
    ['', /https/],
    ['https://user:pass@example.com/', /user name/],
    ['https://example.com:22/', /ports 443, 8443/],
    ['https://example.com:4100/', /ports/],
    ['https://example.com/#x', /fragment/],
    [`https://example.com/${'x'.repeat(3000)}`, /2048/],
  ]
  for (const [url, reason] of refused) assert.match(urlFault(url) ?? '', reason, url)
  for (const url of [
    'https://example.com/',
    'https://example.com:8443/a?b=c',
    'https://1.1.1.1/',
    'https://[2606:4700::1111]/',
  ])
    assert.equal(urlFault(url), undefined, url)
})

test('target: the operator allows networks and hosts, also over plain HTTP and at other ports', () => {
  const allowed = readTargets('10.1.0.0/16, receiver.internal, other.internal:8080, 127.0.0.1')
  assert.ok(allowed)
  assert.equal(addressFault('10.1.2.3', allowed), undefined)
  assert.equal(addressFault('::ffff:10.1.2.3', allowed), undefined)
  assert.ok(addressFault('10.2.0.1', allowed))
  for (const url of [
    'http://10.1.2.3:9999/',
    'http://receiver.internal/',
    'http://other.internal:8080/',
    'http://127.0.0.1:3000/',
  ])
    assert.equal(urlFault(url, allowed), undefined, url)
  for (const url of ['http://10.2.0.1/', 'http://other.internal:8081/', 'http://sub.receiver.internal/'])
    assert.ok(urlFault(url, allowed), url)
})

test('target: a list that is none is refused', () => {
  for (const text of ['10.0.0.0/33', '::/129', 'a b', '*.example.com', 'http://a', '10.0.0.0/', 'host:port'])
    assert.equal(readTargets(text), undefined, text)
  assert.ok(readTargets(''))
})
