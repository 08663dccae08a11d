import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sha256 } from '../../lib/secret.ts'
import { BrowserSessions } from './browser-sessions.ts'

const signingSecret = 'a signing secret of the tests, long enough'
const sessions = new BrowserSessions({ signingSecret })
const keyHash = sha256('atoll_key')
const own = 'http://atoll.test:4100'

interface Given {
  method?: string
  host?: string
  protocol?: string
  ws?: boolean
  headers?: Record<string, string>
}

function asked({ method = 'GET', host = 'atoll.test:4100', protocol = 'http', ws = false, headers = {} }: Given = {}) {
  return { method, host, protocol, ws, headers }
}

/** `name=value` of what `Set-Cookie` says. */
function pairOf(cookie: string): string {
  return cookie.split(';', 1)[0] ?? ''
}

function found(cookie: string, given: Given = {}, by = sessions) {
  return by.find(asked({ ...given, headers: { cookie } }))
}

test('browser session: the cookie stands for its key, for twelve hours', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 })
  const cookie = sessions.begin(asked(), keyHash)
  assert.match(
    cookie,
    /^atoll_dashboard=[0-9a-f]{64}\.\d+\.[\w-]{43}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/,
  )
  const session = found(pairOf(cookie))
  assert.ok(typeof session === 'object')
  assert.deepEqual([session.keyHash, session.endsAt.getTime()], [keyHash, 1_800_000_000_000 + 43_200_000])
  assert.ok(!cookie.includes(session.credential))
  t.mock.timers.tick(43_200_000 - 1)
  assert.ok(typeof found(pairOf(cookie)) === 'object')
  t.mock.timers.tick(1)
  assert.equal(found(pairOf(cookie)), 'ended')
})

test('browser session: it ends no later than its key', () => {
  const soon = new Date(Date.now() + 60_000)
  const cookie = sessions.begin(asked(), keyHash, soon)
  assert.match(cookie, /; Max-Age=(?:60|59);/)
  const session = found(pairOf(cookie))
  assert.ok(typeof session === 'object' && session.endsAt.getTime() === soon.getTime())
})

test('browser session: all sessions of a key have one credential, and no other key has it', () => {
  const credentialOf = (hash: string) => {
    const session = found(pairOf(sessions.begin(asked(), hash, new Date(Date.now() + Math.random() * 1e6 + 1000))))
    return typeof session === 'object' ? session.credential : undefined
  }
  assert.equal(credentialOf(keyHash), credentialOf(keyHash))
  assert.notEqual(credentialOf(keyHash), credentialOf(sha256('another')))
})

test('browser session: nothing of a cookie can be altered, and nobody else makes one', () => {
  const pair = pairOf(sessions.begin(asked(), keyHash))
  const [name = '', value = ''] = pair.split('=')
  const [hash = '', end = '', code = ''] = value.split('.')
  const others = new BrowserSessions({ signingSecret: `${signingSecret}.` })
  for (const forged of [
    `${sha256('another')}.${end}.${code}`,
    `${hash}.${Number(end) + 1}.${code}`,
    `${hash}.0${end}.${code}`,
    `${hash}.${end}.${code.startsWith('A') ? 'B' : 'A'}${code.slice(1)}`,
    `${hash}.${end}.${code}A`,
    `${hash}.${end}.`,
    `${hash}.${end}`,
    `${hash}${end}..${code}`,
    hash,
    '',
    pairOf(others.begin(asked(), keyHash)).slice(name.length + 1),
  ]) {
    assert.equal(found(`${name}=${forged}`), 'ended', forged)
  }
  assert.ok(typeof found(pair) === 'object')
  assert.equal(found('a=1; atoll_dashboards=x'), undefined)
  assert.equal(found(''), undefined)
})

test('browser session: a cookie that a sibling host has set beside it does not hide it', () => {
  const pair = pairOf(sessions.begin(asked(), keyHash))
  const crowd = Array.from({ length: 50 }, (_, index) => `atoll_dashboard=${index}`).join('; ')
  for (const cookie of [`${crowd}; ${pair}`, `${pair};${crowd}`, `a=b;${pair} ; ${crowd}`]) {
    assert.ok(typeof found(cookie) === 'object')
  }
})

test('browser session: over TLS the cookie has the name that no sibling host can set, and no other counts', () => {
  const tls = { protocol: 'https', host: 'api.example.com' }
  const cookie = sessions.begin(asked(tls), keyHash)
  assert.match(cookie, /^__Host-atoll=[^;]+; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure$/)
  assert.ok(typeof found(pairOf(cookie), tls) === 'object')
  assert.ok(typeof found(pairOf(cookie), { ...tls, protocol: 'wss' }) === 'object')
  assert.equal(found(pairOf(cookie)), undefined)
  const plain = pairOf(sessions.begin(asked(), keyHash))
  assert.ok(typeof found(plain) === 'object')
  assert.equal(found(plain, tls), undefined)
})

test('browser session: a configured https address says that its own host is reached by TLS, and says it of no other', () => {
  const configured = new BrowserSessions({ signingSecret, publicUrl: 'https://api.example.com/' })
  assert.match(configured.begin(asked({ host: 'API.example.com' }), keyHash), /^__Host-atoll=.*; Secure$/)
  assert.match(configured.begin(asked({ host: '127.0.0.1:4100' }), keyHash), /^atoll_dashboard=/)
})

test('browser session: signing out removes the cookie of the scheme', () => {
  assert.equal(sessions.end(asked()), 'atoll_dashboard=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict')
  assert.match(sessions.end(asked({ protocol: 'https' })), /^__Host-atoll=; .*Max-Age=0.*; Secure$/)
})

test('browser session: it counts for requests of the own pages alone', () => {
  const same = { 'sec-fetch-site': 'same-origin' }
  const isForeign = (given: Given, by = sessions) => by.foreignFault(asked(given)) !== undefined
  for (const given of [
    {},
    { method: 'HEAD' },
    { headers: same },
    { headers: { 'sec-fetch-site': 'none' } },
    { method: 'POST', headers: { origin: own } },
    { method: 'DELETE', headers: { ...same, origin: own } },
    { ws: true, headers: { origin: own } },
    { headers: { origin: own } },
    { host: 'ATOLL.test:4100', method: 'POST', headers: { origin: own } },
  ]) {
    assert.equal(isForeign(given), false, JSON.stringify(given))
  }
  for (const given of [
    { method: 'POST' },
    { method: 'DELETE', headers: same },
    { method: 'OPTIONS' },
    { ws: true },
    { ws: true, headers: same },
    { headers: { 'sec-fetch-site': 'same-site' } },
    { headers: { 'sec-fetch-site': 'cross-site' } },
    { headers: { 'sec-fetch-site': '' } },
    { method: 'POST', headers: { origin: own, 'sec-fetch-site': 'same-site' } },
    ...['http://sb-1-p80.preview.atoll.test:4100', 'http://atoll.test', 'http://atoll.test:4101', 'null', ''].flatMap(
      (origin) => [{ headers: { origin } }, { method: 'POST', headers: { origin } }, { ws: true, headers: { origin } }],
    ),
    { host: '', method: 'POST', headers: { origin: 'file:///' } },
    { host: '', method: 'POST', headers: { origin: 'data:x' } },
  ]) {
    assert.equal(isForeign(given), true, JSON.stringify(given))
  }
})

test('browser session: the configured address is an own page too, and over TLS the page of plain HTTP is none', () => {
  const configured = new BrowserSessions({ signingSecret, publicUrl: 'https://api.example.com' })
  const faultOf = (given: Given) => configured.foreignFault(asked({ method: 'POST', ...given }))
  const origin = 'https://api.example.com'
  // A proxy that is not trusted, and one that rewrites `Host`.
  assert.equal(faultOf({ host: 'api.example.com', headers: { origin } }), undefined)
  assert.equal(faultOf({ host: '127.0.0.1:4100', headers: { origin } }), undefined)
  assert.notEqual(faultOf({ host: 'api.example.com', headers: { origin: 'http://api.example.com' } }), undefined)
  assert.notEqual(faultOf({ host: '127.0.0.1:4100', headers: { origin: 'http://api.example.com' } }), undefined)
  assert.notEqual(faultOf({ headers: { origin: 'https://api.example.com.evil.test' } }), undefined)
  const tls = { protocol: 'https', host: 'atoll.test', method: 'POST' }
  assert.equal(sessions.foreignFault(asked({ ...tls, headers: { origin: 'https://atoll.test' } })), undefined)
  assert.notEqual(sessions.foreignFault(asked({ ...tls, headers: { origin: 'http://atoll.test' } })), undefined)
})
