/** Attacks by what is said in HTTP, in the clear and where TLS ends at the proxy. */
import assert from 'node:assert/strict'
import { type Attack, httpRefused, requests, unseen } from './attack.ts'
import type { Seen } from './journal.ts'

/** To `read.test`, of which `GET` and `HEAD` below `/v1/` are listed; the first request is a good one in itself. */
function smuggled(name: string, bytes: string, ends: RegExp = /./): Attack {
  return {
    name: `smuggling: ${name}`,
    does: `
data = (${bytes}).encode('latin1')
for answer in tls('read.test', ca=None, data=data), tcp('read.test', 80, data): print(' '.join(re.findall(r'HTTP/1[.][01] (\\d+)', answer)) or answer[:80])`,
    ends,
    holds: unseen('admin'),
  }
}

const second = 'GET /admin HTTP/1.1\\r\\nHost: read.test\\r\\n\\r\\n'
const good = 'GET /v1/a HTTP/1.1\\r\\nHost: read.test\\r\\n'

const smuggling: Attack[] = [
  smuggled('the next request on a connection is judged by itself', `'${good}\\r\\n${second}'`, /^200 403$|^200$/),
  smuggled(
    'Content-Length beside Transfer-Encoding',
    `'${good}Content-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n${second}'`,
  ),
  smuggled(
    'Transfer-Encoding before Content-Length',
    `'${good}Transfer-Encoding: chunked\\r\\nContent-Length: 60\\r\\n\\r\\n0\\r\\n\\r\\n${second}'`,
  ),
  ...[
    'Transfer-Encoding: xchunked',
    'Transfer-Encoding : chunked',
    'Transfer-Encoding:\\tchunked',
    'Transfer-Encoding: chunked\\r\\nTransfer-Encoding: identity',
    'Transfer-Encoding: identity, chunked, identity',
    'Transfer-Encoding: "chunked"',
    'Transfer-Encoding:\\x0bchunked',
    'X: y\\nTransfer-Encoding: chunked',
    'Transfer-Encoding\\r\\n : chunked',
  ].map((field) =>
    smuggled(`a field that some take for chunked: ${field}`, `'${good}${field}\\r\\n\\r\\n0\\r\\n\\r\\n${second}'`),
  ),
  ...['5, 5', '+0', '-1', '0x0', '1e1', '0 0', '18446744073709551616', '', '00000000000000000000000000005'].map(
    (length) =>
      smuggled(`a length of ${length || 'nothing'}`, `'${good}Content-Length: ${length}\\r\\n\\r\\n${second}'`),
  ),
  smuggled('two lengths that differ', `'${good}Content-Length: 0\\r\\nContent-Length: 44\\r\\n\\r\\n${second}'`),
  smuggled('lines that end without a carriage return', `'GET /v1/a HTTP/1.1\\nHost: read.test\\n\\n${second}'`),
  smuggled('lines that end with a carriage return alone', `'GET /v1/a HTTP/1.1\\rHost: read.test\\r\\r${second}'`),
  smuggled('a folded field', `'${good}X: a\\r\\n GET /admin HTTP/1.1\\r\\n\\r\\n${second}'`),
  smuggled('a NUL in a field', `'${good}X: a\\0b\\r\\n\\r\\n${second}'`, /^400.*|^closed$|^reset$/),
  ...['-1', '0x1', 'fffffffffffffffff', '1;a\\nb', ' 1', '1\\n'].map((size) =>
    smuggled(
      `a chunk of size ${size}`,
      `'POST /v1/a HTTP/1.1\\r\\nHost: read.test\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n${size}\\r\\nx\\r\\n0\\r\\n\\r\\n${second}'`,
    ),
  ),
  smuggled(
    'an upgrade that the server does not take',
    `'${good}Connection: Upgrade\\r\\nUpgrade: other\\r\\n\\r\\n${second}'`,
  ),
  smuggled('a body behind HEAD', `'HEAD /v1/a HTTP/1.1\\r\\nHost: read.test\\r\\n\\r\\n${second}'`),
  smuggled('a request of HTTP/0.9', `'GET /admin\\r\\n\\r\\n'`, /^400|^closed|^reset|^403/),
  smuggled('a request of HTTP/1.0 without a host', `'GET /admin HTTP/1.0\\r\\n\\r\\n'`, /^40[03]|^closed|^reset|^421/),
  smuggled(
    'HTTP/2 in the clear, by knowledge or by upgrade',
    `'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'`,
    httpRefused,
  ),
  smuggled('a target of a star', `'OPTIONS * HTTP/1.1\\r\\nHost: read.test\\r\\n\\r\\n'`, /^40[035]|^closed|^reset/),
]

const hosts: Attack[] = [
  {
    name: 'another Host where TLS ends at the proxy',
    does: `
for name in 'evil.test', 'other.test', 'read.test.evil.test', 'xread.test':
    print(status(tls('read.test', ca=None, data=request('read.test', '/v1/host', name=name))))`,
    ends: /^421$/,
    holds: unseen('/v1/host'),
  },
  {
    name: 'another Host where TLS is let pass: it reaches the server of the listed name alone, as is stated',
    does: `print(body(tls('other.test', data=request('other.test', '/front', name='evil.test'))))`,
    ends: /"sni":"other.test"/,
    holds: (seen, { main }) =>
      assert.deepEqual(
        requests(seen).map(({ address }) => address),
        [main],
      ),
  },
  {
    name: 'another Host where a rule has TLS inspected',
    does: `print(status(tls('second.test', ca=None, data=request('second.test', '/front', name='evil.test'))))`,
    ends: /^421$/,
    holds: unseen('front'),
  },
  {
    name: 'odd forms of Host',
    does: `
for name in 'read.test@evil.test', 'evil.test@read.test', 'read.test, evil.test', 'read.test evil.test', 'read.test/evil', 'read.test:443:80', 'read.test:99999', '', '[::1]', 'read.test\\\\.evil.test', 'read.test%00.evil.test', 'read.test#', 'r%65ad.test':
    print(status(tls('read.test', ca=None, data=request('read.test', '/v1/odd', name=name))))`,
    ends: /^(400|403|421)$/,
    holds: unseen('/v1/odd'),
  },
  {
    name: 'Host twice, and none',
    does: `
for fields in 'Host: read.test\\r\\nHost: evil.test', 'Host: evil.test\\r\\nHost: read.test', 'X: y', 'Host : evil.test\\r\\nHost: read.test':
    print(status(tls('read.test', ca=None, data=('GET /v1/twice HTTP/1.1\\r\\n%s\\r\\n\\r\\n' % fields).encode())))`,
    ends: /^(400|403|421)$/,
    holds: unseen('twice'),
  },
  {
    name: 'whole URLs of others within TLS and in the clear',
    does: `
for url in 'https://evil.test/v1/whole', 'http://evil.test/v1/whole', 'https://read.test@evil.test/v1/whole', '//evil.test/v1/whole', 'evil.test/v1/whole', 'gopher://read.test/v1/whole':
    for answer in tls('read.test', ca=None, data=request('read.test', url)), tcp('read.test', 80, request('read.test', url)): print(status(answer))`,
    ends: /^(400|403|421)$/,
    holds: (seen) => assert.ok(requests(seen).every(({ host }) => host === 'read.test')),
  },
  {
    name: 'the good forms of Host: upper case, a dot, the port of the connection',
    does: `
for name in 'READ.test', 'read.test.', 'read.test:443': print(status(tls('read.test', ca=None, data=request('read.test', '/v1/good', name=name))))`,
    ends: /^200$/,
  },
  {
    name: 'HTTP/2: another :authority on a connection, with or without a Host of the right name',
    does: `
import subprocess
open('h2.mjs', 'w').write('''
import { connect } from 'node:http2'
const ask = (session, fields) => new Promise((done) => {
  const stream = session.request({ ':path': '/v1/coalesced', ...fields })
  stream.on('response', (head) => done(head[':status'])); stream.on('error', (error) => done(error.code)); stream.end()
})
for (const fields of [{ ':authority': 'evil.test' }, { ':authority': 'other.test' }, { ':authority': 'evil.test', host: 'read.test' }, { ':authority': 'read.test', host: 'evil.test' }, { ':authority': 'read.test', ':scheme': 'http' }, { ':authority': 'read.test@evil.test' }]) {
  const session = connect('https://read.test'); session.on('error', () => undefined)
  console.log(await ask(session, fields)); session.destroy()
}
process.exit(0)''')
for line in subprocess.run(['node', '--no-warnings', 'h2.mjs'], capture_output=True, text=True, timeout=60).stdout.split(): print(line)`,
    ends: /^(400|403|421|ERR_HTTP2_STREAM_ERROR|ERR_HTTP2_ERROR|ECONNRESET)$/,
    holds: unseen('coalesced'),
  },
]

/** Whether a path as a server saw it is below `/v1/`, however the server reads it. */
function isBelow(path: string): boolean {
  const plain = (text: string) => {
    try {
      return decodeURIComponent(text)
    } catch {
      return text
    }
  }
  const once = plain(path.replace(/\?.*/s, ''))
  return [path, once, once.replaceAll('\\', '/')].every((each) => new URL(each, 'http://x').pathname.startsWith('/v1/'))
}

function allBelow(seen: Seen[]): void {
  for (const { host, path, method } of requests(seen)) {
    if (host !== 'read.test') continue
    assert.ok(isBelow(path), path)
    assert.ok(method === 'GET' || method === 'HEAD', method)
  }
}

const paths: Attack[] = [
  {
    name: 'paths that leave what is listed by dots, slashes and encodings',
    does: `
for path in '/admin', '/v1', '/V1/a', '/v1/../admin', '/v1/%2e%2e/admin', '/v1/.%2E/admin', '/v1%2f..%2fadmin', '/v1/a%2f..%2f..%2fadmin', '//v1/../admin', '/v1/..;/admin', '/v1/a/../../admin', '/./admin', '/x/../admin', '/v1\\\\..\\\\admin', '/v1/%5c..%5c..%5cadmin', '/v1/..%00/admin', '/v1/%2e%2e%2fadmin', '/%76%31/../admin', '?/v1/', '/admin?/v1/', '/admin#/v1/', '/admin;/v1/':
    print(status(tls('read.test', ca=None, data=request('read.test', path))))`,
    ends: /^(400|403|200|404|closed)$/,
    holds: allBelow,
  },
  {
    name: 'paths that are the same when they are read twice',
    does: `for path in '/v1/%252e%252e/admin', '/v1/%25%32%65%25%32%65/admin': print(status(tls('read.test', ca=None, data=request('read.test', path))))`,
    ends: /^(400|403|200)$/,
    holds: allBelow,
  },
  {
    name: 'methods that are not listed, and odd cases of those that are',
    does: `
for method in 'POST', 'PUT', 'DELETE', 'get', 'GeT', 'PoSt', 'CONNECT', 'GET ', 'TRACE', 'X' * 400, 'GET\\0':
    print(status(tls('read.test', ca=None, data=request('read.test', '/v1/method', method))))`,
    ends: /^(400|403|405|421|501|431|closed|reset)$/,
    holds: unseen('/v1/method'),
  },
  {
    name: 'fields that override the method or the path are the server’s own matter, but the request is of a listed method',
    does: `print(status(tls('read.test', ca=None, data=request('read.test', '/v1/override', headers='X-HTTP-Method-Override: DELETE\\r\\n'))))`,
    ends: /^(200|403)$/,
    holds: allBelow,
  },
  {
    name: 'a head that is too long, and one of too many fields',
    does: `
print(status(tls('read.test', ca=None, data=request('read.test', '/v1/long', headers='X: %s\\r\\n' % ('y' * 400000)))))
print(status(tls('read.test', ca=None, data=request('read.test', '/v1/long', headers='X: y\\r\\n' * 20000))))`,
    ends: /^(400|431|413|closed|reset|broken pipe|.*eof.*)$/,
    holds: unseen('/v1/long'),
  },
  {
    name: 'ports that a rule does not name',
    does: `print(tls('read.test', 8443, ca=None, data=request('read.test', '/v1/port'))); print(status(tcp('read.test', 9000, request('read.test', '/v1/port'))))`,
    ends: refusedPort(),
    holds: unseen('/v1/port'),
  },
  {
    name: 'WebSocket to a path that is not listed, and to a listed one with frames that ask for another',
    does: `
key = 'Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n'
def ask(path, more=b''):
    return tls('read.test', ca=None, data=('GET %s HTTP/1.1\\r\\nHost: read.test\\r\\n%s\\r\\n' % (path, key)).encode() + more)
print(status(ask('/admin'))); print(status(ask('/v1/socket', b'GET /admin HTTP/1.1\\r\\nHost: read.test\\r\\n\\r\\n')))`,
    ends: [/^403$/, /^(101|403|400)$/],
    holds: unseen('admin'),
  },
]

export const httpAttacks: Attack[] = [...smuggling, ...hosts, ...paths]

function refusedPort(): RegExp {
  return /^(403|closed|reset|.*access denied.*)$/
}
