import assert from 'node:assert/strict'
import { test } from 'node:test'
import { looksLikeCredential } from '../lib/secret.ts'
import { Visits } from './visits.ts'

const visits = new Visits('a signing secret of the tests')
const preview = { hostname: 'sb-1-p3000.preview.test', tokenHash: 'a'.repeat(64) }
const others = [
  { ...preview, hostname: 'sb-2-p3000.preview.test' },
  { ...preview, tokenHash: 'b'.repeat(64) },
]
const startMs = 1_800_000_000_000

test('visit: its token holds for a minute, for one host name and one token of the preview', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: startMs })
  const { token, expiresAt } = visits.begin(preview)
  assert.equal(expiresAt.getTime(), startMs + 60_000)
  assert.ok(visits.isToken(token, preview))
  for (const other of others) assert.ok(!visits.isToken(token, other))
  t.mock.timers.tick(59_999)
  assert.ok(visits.isToken(token, preview))
  t.mock.timers.tick(1)
  assert.ok(!visits.isToken(token, preview))
})

test('visit: its cookie holds for twelve hours, for the same', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: startMs })
  const { value, maxAgeSeconds } = visits.cookie(preview)
  assert.equal(maxAgeSeconds, 43_200)
  for (const other of others) assert.ok(!visits.isCookie(value, other))
  t.mock.timers.tick(43_200_000 - 1)
  assert.ok(visits.isCookie(value, preview))
  t.mock.timers.tick(1)
  assert.ok(!visits.isCookie(value, preview))
})

test('visit: a token is no cookie, a cookie is no token, and neither can be altered or made elsewhere', () => {
  const { token } = visits.begin(preview)
  const { value } = visits.cookie(preview)
  const [, end = '', code = ''] = /^pvt_visit_([^_]+)_(.*)$/.exec(token) ?? []
  const [cookieEnd = '', cookieCode = ''] = value.split('.')
  const later = (Number.parseInt(end, 36) + 1).toString(36)
  for (const forged of [
    `pvt_visit_${later}_${code}`,
    `pvt_visit_0${end}_${code}`,
    `pvt_visit_${end.toUpperCase()}_${code}`,
    `pvt_visit_${end}_${code.slice(1)}A`,
    `pvt_visit_${cookieEnd}_${cookieCode}`,
    `${token}x`,
    ` ${token}`,
    `pvt_${end}_${code}`,
    'pvt_visit__',
    '',
    value,
    new Visits('another').begin(preview).token,
  ]) {
    assert.ok(!visits.isToken(forged, preview), forged)
  }
  for (const forged of [`${end}.${code}`, `${cookieEnd}1.${cookieCode}`, `${cookieEnd}.`, token, '', '.']) {
    assert.ok(!visits.isCookie(forged, preview), forged)
  }
})

test('visit: its token is known as a credential, so that it enters no sandbox', () => {
  assert.ok(looksLikeCredential(visits.begin(preview).token))
})
