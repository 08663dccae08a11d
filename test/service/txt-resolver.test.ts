import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'
import { createTxtResolver } from '../../src/server/txt-resolver.ts'
import { DnsServer } from '../support/dns-server.ts'

const name = '_atoll.shop.example.com'
/** For answers that come, on a busy machine too. */
const patientMs = 20_000
/** For those that never come. */
const briefMs = 50
let dns: DnsServer

before(async () => {
  dns = await DnsServer.start()
})

after(() => dns[Symbol.asyncDispose]())

beforeEach(() => {
  dns.texts.clear()
  dns.aliases.clear()
  dns.asked.length = 0
  dns.fault = undefined
})

async function look(
  of = name,
  { signal = new AbortController().signal, tryMs = patientMs } = {},
): Promise<readonly string[]> {
  return await createTxtResolver({ servers: [dns.address], tryMs }).resolveTxt(of, signal)
}

test('TXT record: all of a name are found, the strings of each joined', async () => {
  dns.texts.set(name, [['v=spf1 -all'], ['atoll-', 'verification', '=1'], [''], ['"\\ ']])
  assert.deepEqual(await look(), ['v=spf1 -all', 'atoll-verification=1', '', '"\\ '])
})

test('TXT record: an alias is followed', async () => {
  dns.aliases.set(name, 'proof.example.net')
  dns.texts.set('proof.example.net', [['there']])
  assert.deepEqual(await look(), ['there'])
  dns.texts.clear()
  assert.deepEqual(await look(), [], 'one that leads nowhere')
})

test('TXT record: a name that does not exist has none', async () => {
  assert.deepEqual(await look(), [])
})

test('TXT record: an answer that is too long for a datagram comes whole', async () => {
  const many = Array.from({ length: 200 }, (_, index) => ['x'.repeat(250), String(index)])
  dns.texts.set(name, many)
  const texts = await look()
  assert.deepEqual([texts.length, texts.at(-1)], [200, `${'x'.repeat(250)}199`])
})

test('TXT record: a failing, refusing or silent name server causes an error', async () => {
  dns.texts.set(name, [['there']])
  // Refusals by their codes: FORMERR, SERVFAIL, NOTIMP, REFUSED.
  for (const fault of [1, 2, 4, 5, 'garbage', 'silent'] as const) {
    dns.fault = fault
    const startedMs = performance.now()
    await assert.rejects(
      look(name, { tryMs: typeof fault === 'number' ? patientMs : briefMs }),
      { syscall: 'queryTxt' },
      String(fault),
    )
    assert.ok(performance.now() - startedMs < patientMs, 'it does not wait for ever')
  }
  assert.ok(dns.asked.length <= 12, 'nobody is asked more than twice')
})

test('TXT record: an abort ends the wait', async () => {
  dns.fault = 'silent'
  const leaving = new AbortController()
  const looked = createTxtResolver({ servers: [dns.address], tryMs: 60_000 }).resolveTxt(name, leaving.signal)
  while (dns.asked.length === 0) await new Promise((resolve) => setImmediate(resolve))
  leaving.abort()
  await assert.rejects(looked, { code: 'ECANCELLED' })
  await assert.rejects(look(name, { signal: leaving.signal }), { name: 'AbortError' })
})
