/** Bytes on the wire that two readers could take for different requests, or that never end. */
import assert from 'node:assert/strict'
import type { Target, Try } from './target.ts'

const head = (key: string, more = '') => `Host: 127.0.0.1\r\nX-API-Key: ${key}\r\n${more}`
const smuggled = 'GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'

/** Its answer begins with one of these statuses, or the connection ends without; no second request is answered. */
function framing(
  name: string,
  text: (key: string) => string,
  statuses: readonly number[] = [400],
  waitMs = 2_000,
): Try {
  return {
    name,
    run: async ({ raw, attacker }) => {
      const said = await raw(text(attacker.key), waitMs)
      const answers = said.match(/^HTTP\/1\.1 \d{3}/gm) ?? []
      assert.ok(answers.length <= 1, `${answers.length} answers: ${said.slice(0, 400)}`)
      const status = Number(answers[0]?.slice(9) ?? 0)
      assert.ok(status === 0 || statuses.includes(status), said.slice(0, 300))
    },
  }
}

const post = (more: string, body: string) => (key: string) =>
  `POST /api/sandboxes HTTP/1.1\r\n${head(key, more)}\r\n${body}`

export const requestTries: Try[] = [
  framing('a length and chunks', post(`Content-Length: 5\r\nTransfer-Encoding: chunked\r\n`, `0\r\n\r\n${smuggled}`)),
  framing('two lengths', post('Content-Length: 2\r\nContent-Length: 60\r\n', `{}${smuggled}`)),
  framing('a length with a sign', post('Content-Length: +2\r\n', `{}${smuggled}`)),
  framing('a length in hex', post('Content-Length: 0x2\r\n', `{}${smuggled}`)),
  framing('a length of two words', post('Content-Length: 2 60\r\n', `{}${smuggled}`)),
  framing('a negative length', post('Content-Length: -1\r\n', smuggled)),
  framing('a coding that nobody knows', post('Transfer-Encoding: cow\r\n', smuggled)),
  framing('chunks behind another coding', post('Transfer-Encoding: chunked, gzip\r\n', `0\r\n\r\n${smuggled}`)),
  framing('chunked with a tab in its name', post('Transfer-Encoding:\x0bchunked\r\n', `0\r\n\r\n${smuggled}`)),
  framing('a blank before the colon', post('Transfer-Encoding : chunked\r\n', `0\r\n\r\n${smuggled}`)),
  framing('a folded header', post('X-Folded: a\r\n b\r\nContent-Length: 2\r\n', '{}'), [400, 201]),
  framing('a bare line feed', (key) => `GET /api/sandboxes HTTP/1.1\n${head(key)}\n`, [400]),
  framing('a bare carriage return in a header', post('X-A: b\rContent-Length: 2\r\n', '{}')),
  framing('a NUL in a header', post('X-A: b\0c\r\n', '')),
  framing('a chunk of a size above all integers', post('Transfer-Encoding: chunked\r\n', `fffffffffffffffff\r\nx`)),
  framing('a chunk of a negative size', post('Transfer-Encoding: chunked\r\n', `-1\r\nx`)),
  framing(
    'a chunk with a long extension',
    post('Transfer-Encoding: chunked\r\n', `2;${'a'.repeat(100_000)}\r\n{}\r\n0\r\n\r\n`),
    [400, 413, 431],
  ),
  framing('no Host', (key) => `GET /api/sandboxes HTTP/1.1\r\nX-API-Key: ${key}\r\n\r\n`),
  framing(
    'two Hosts',
    (key) => `GET /api/sandboxes HTTP/1.1\r\nHost: a\r\nHost: b\r\nX-API-Key: ${key}\r\n\r\n`,
    [400, 421, 404],
  ),
  framing('HTTP/0.9', () => 'GET /\r\n'),
  framing('HTTP/9.9', (key) => `GET /api/sandboxes HTTP/9.9\r\n${head(key)}\r\n`, [400, 505]),
  framing('an HTTP/2 preface', () => 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  framing('CONNECT', (key) => `CONNECT 169.254.169.254:80 HTTP/1.1\r\n${head(key)}\r\n`, [400, 404, 405, 501]),
  framing('TRACE', (key) => `TRACE /api/sandboxes HTTP/1.1\r\n${head(key)}\r\n`, [400, 404, 405, 501]),
  framing(
    'an address of another server',
    (key) => `GET http://169.254.169.254/ HTTP/1.1\r\n${head(key)}\r\n`,
    [400, 404, 421, 200],
  ),
  framing('a path of ..', (key) => `GET /../../etc/passwd HTTP/1.1\r\n${head(key)}\r\n`, [400, 404]),
  framing('a path of 100 kB', (key) => `GET /${'a'.repeat(100_000)} HTTP/1.1\r\n${head(key)}\r\n`, [400, 414, 431]),
  framing(
    'headers of a megabyte',
    (key) => `GET /api/sandboxes HTTP/1.1\r\n${head(key, `X-A: ${'a'.repeat(2 ** 20)}\r\n`)}\r\n`,
    [431, 400],
  ),
  framing(
    'ten thousand headers',
    (key) => `GET /api/sandboxes HTTP/1.1\r\n${head(key, 'X-A: b\r\n'.repeat(10_000))}\r\n`,
    [431, 400],
  ),
  framing(
    'an expectation that nobody knows',
    (key) => `GET /api/sandboxes HTTP/1.1\r\n${head(key, 'Expect: the unexpected\r\n')}\r\n`,
    [417, 400],
  ),
  framing(
    'an upgrade to nothing',
    (key) => `GET /api/sandboxes HTTP/1.1\r\n${head(key, 'Connection: Upgrade\r\nUpgrade: nothing\r\n')}\r\n`,
    [200, 400, 404, 426],
  ),
  framing('bytes at random', () => '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'.repeat(100)),
  {
    name: 'a thousand requests in one packet are answered in order or refused, and the server serves others',
    run: async ({ raw, attacker, neighbour }: Target) => {
      const one = `GET /api/sandboxes?limit=1 HTTP/1.1\r\n${head(attacker.key)}\r\n`
      const isWhole = (said: string) => said.split('HTTP/1.1 ').length > 1000
      const [said, other] = await Promise.all([raw(one.repeat(1000), 60_000, isWhole), neighbour.get('/api/sandboxes')])
      assert.equal(other.status, 200)
      assert.ok(said.startsWith('HTTP/1.1 '))
    },
  },
  {
    name: 'five hundred heads that never end hold nobody else',
    run: async ({ raw, attacker, neighbour }: Target) => {
      const half = `GET /api/sandboxes HTTP/1.1\r\n${head(attacker.key)}`
      const open = Array.from({ length: 500 }, () => raw(half, 2_000))
      for (let call = 0; call < 20; call += 1) assert.equal((await neighbour.get('/api/sandboxes')).status, 200)
      await Promise.all(open)
    },
  },
  {
    name: 'two hundred bodies that never come hold nobody else',
    run: async ({ raw, attacker, neighbour }: Target) => {
      const half = post('Content-Type: application/json\r\nContent-Length: 900000\r\n', '{')(attacker.key)
      const open = Array.from({ length: 200 }, () => raw(half, 2_000))
      const made = await neighbour.post('/api/volumes', { name: 'while-they-wait' })
      assert.ok([200, 201].includes(made.status), made.text)
      await neighbour.delete('/api/volumes/while-they-wait')
      await Promise.all(open)
    },
  },
]
