import assert from 'node:assert/strict'
import { test } from 'node:test'
import { messageIn, withoutAddresses } from './skopeo.ts'

test('skopeo: what it says is told without the addresses of this host and of its name server', () => {
  for (const [said, told] of [
    ['dial tcp: lookup ghcr.io on 10.0.0.2:53: no such host', 'dial tcp: lookup ghcr.io: no such host'],
    ['dial tcp: lookup a.b on [fe80::1%eth0]:53: server misbehaving', 'dial tcp: lookup a.b: server misbehaving'],
    ['lookup a.b: read udp 10.0.0.5:40000->10.0.0.2:53: i/o timeout', 'lookup a.b: read udp: i/o timeout'],
    ['dial tcp 192.168.1.9:443: connect: connection refused', 'dial tcp: connect: connection refused'],
    ['dial tcp [2001:db8::1]:443: i/o timeout', 'dial tcp: i/o timeout'],
    ['manifest of 1.2.3 is odd', 'manifest of 1.2.3 is odd'],
  ] as const)
    assert.equal(withoutAddresses(said), told)
})

test('skopeo: its message is told without the quotes of its log', () => {
  const said = String.raw`time="2026-01-01T00:00:00Z" level=fatal msg="Error parsing image name \"docker://a/b\": Get \"https://a/v2/\": no such host"`
  assert.equal(
    messageIn(`earlier\n${said}\n`),
    'Error parsing image name "docker://a/b": Get "https://a/v2/": no such host',
  )
  assert.equal(messageIn('level=fatal msg=short'), 'short')
  assert.equal(messageIn('no log'), 'no log')
})
