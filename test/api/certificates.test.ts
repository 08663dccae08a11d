import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, beforeEach, test } from 'node:test'
import { createSecureContext, createServer, type SecureContext, type Server } from 'node:tls'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { exchange } from '../support/api-client.ts'
import { makeWorld, previewHost, type World } from '../support/world.ts'

const covered = 'covered.example.com'
let world: World
/** Serves a certificate for one name, and none for others. */
let edge: Server
let handshakes: string[] = []
let folder: string
let id: string
let port = 4000

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'atoll-certificate-'))
  const file = (name: string) => join(folder, name)
  const names = ['-subj', `/CN=${covered}`, '-addext', `subjectAltName=DNS:${covered}`]
  const made = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2']
  execFileSync('openssl', [...made, ...names, '-keyout', file('key.pem'), '-out', file('cert.pem')], { stdio: 'pipe' })
  const context = createSecureContext({ key: await readFile(file('key.pem')), cert: await readFile(file('cert.pem')) })
  edge = createServer({
    SNICallback(servername: string, done: (error: Error | null, context?: SecureContext) => void) {
      handshakes.push(servername)
      if (servername === 'uncovered.example.com') done(new Error('no certificate'))
      else done(null, context)
    },
  })
  edge.on('tlsClientError', () => {})
  edge.listen(0, '127.0.0.1')
  await once(edge, 'listening')
  world = await makeWorld({
    trustProxy: ['127.0.0.2'],
    publicUrl: 'https://api.test',
    edge: { port: (edge.address() as AddressInfo).port, probeAfterMs: 50 },
  })
  id = await world.sandbox()
})

after(async () => {
  await world.close()
  edge.close()
  await rm(folder, { recursive: true })
})

beforeEach(() => {
  handshakes = []
})

/** Declares a preview of a fresh port. */
async function declare(domain?: string): Promise<number> {
  port++
  if (domain !== undefined) world.prove(domain)
  const { status, body } = await world.api.post(`/api/sandboxes/${id}/preview`, { port, domain })
  assert.deepEqual([status, body.sslStatus], [201, 'pending'])
  return port
}

async function statusOf(which: number): Promise<string> {
  const { body } = await world.api.get(`/api/sandboxes/${id}/preview`)
  return body.find((preview: { port: number }) => preview.port === which).sslStatus
}

async function untilStatus(which: number, status: string): Promise<void> {
  await eventually(async () => (await statusOf(which)) === status, { what: `status ${status}` })
}

const question = (domain: string) => `/internal/tls-ask?domain=${encodeURIComponent(domain)}`
const mayHave = async (domain: string) => (await world.api.get(question(domain), { key: null })).status

test('certificate: certificates may be had for previews of sandboxes, registered domains and the API, and for nothing else', async () => {
  await declare('mine.example.com')
  const stopped = await world.sandbox()
  await world.api.delete(`/api/sandboxes/${stopped}`)
  for (const name of ['api.test', `${id}-p3000.${previewHost}`, 'mine.example.com', 'MINE.example.com.']) {
    assert.equal(await mayHave(name), 200, name)
  }
  const others = [`${stopped}-p80.${previewHost}`, `sb-unknown00000-p80.${previewHost}`, `${id}-p0.${previewHost}`]
  others.push('other.example.com', previewHost, 'x.api.test', '127.0.0.1', '../etc', "a'b", '*.example.com')
  for (const name of others) assert.equal(await mayHave(name), 404, name)
  assert.equal((await world.api.get('/internal/tls-ask')).status, 400)
  assert.equal((await world.api.get(question('x'.repeat(254)))).status, 400)
})

test('certificate: a forwarded question is not answered', async () => {
  for (const name of ['x-forwarded-for', 'x-forwarded-host', 'forwarded', 'via']) {
    const { status } = await world.api.get(question('api.test'), { headers: { [name]: 'x' } })
    assert.equal(status, 404, name)
  }
})

test('certificate: one that the edge serves is recorded without a visit', async () => {
  const declared = await declare(covered)
  assert.equal(await mayHave(covered), 200)
  await untilStatus(declared, 'active')
  // A question about a name of an earlier test may come late: only those about this one count.
  const asked = () => handshakes.filter((name) => name === covered).length
  assert.equal(asked(), 1, 'one question is enough')
  assert.equal(await mayHave(covered), 200)
  await new Promise((resolve) => setTimeout(resolve, 150))
  assert.equal(asked(), 1, 'what is known is not asked again')
})

test('certificate: a failed issuance is recorded, and a later success too', async () => {
  const refused = await declare('uncovered.example.com')
  await mayHave('uncovered.example.com')
  await untilStatus(refused, 'failed')
  // A certificate of another name is none.
  const wrong = await declare('wrong.example.com')
  await mayHave('wrong.example.com')
  await untilStatus(wrong, 'failed')

  const visit = async (localAddress: string, proto: string) =>
    await exchange(world.origin, {
      localAddress,
      headers: { host: 'wrong.example.com', 'x-forwarded-proto': proto },
    })
  await visit('127.0.0.1', 'https')
  await visit('127.0.0.2', 'http')
  assert.equal(await statusOf(wrong), 'failed', 'neither a stranger’s word nor plain http counts')
  await visit('127.0.0.2', 'https')
  await untilStatus(wrong, 'active')
})

test('certificate: the first https request makes a preview active: its own name without a domain, else the domain', async () => {
  const visit = async (host: string) =>
    await exchange(world.origin, { localAddress: '127.0.0.2', headers: { host, 'x-forwarded-proto': 'https' } })
  const bare = await declare()
  await visit(`${id}-p${bare}.${previewHost}`)
  await untilStatus(bare, 'active')
  const named = await declare('named.example.com')
  await visit(`${id}-p${named}.${previewHost}`)
  assert.equal(await statusOf(named), 'pending')
  await visit('named.example.com')
  await untilStatus(named, 'active')

  const path = `/api/sandboxes/${id}/preview`
  const again = await world.api.post(path, { port: named, domain: 'named.example.com' })
  assert.deepEqual([again.status, again.body.sslStatus], [200, 'active'])
  const guarded = await world.api.post(path, { port: named, authConfig: { scheme: 'bearer' } })
  assert.deepEqual([guarded.body.customHostname, guarded.body.sslStatus], ['named.example.com', 'active'])
  world.prove('moved.example.com')
  const moved = await world.api.post(path, { port: named, domain: 'moved.example.com' })
  assert.deepEqual([moved.status, moved.body.sslStatus], [200, 'pending'], 'another name needs another certificate')
  const removed = await world.api.post(path, { port: named, domain: null })
  assert.deepEqual([removed.status, removed.body.sslStatus], [200, 'pending'], 'and so does its own')
})

test('certificate: questions are bounded, whatever names they are about', async () => {
  const answers: number[] = []
  // A slow machine asks so slowly that the first three hundred may all be answered.
  while (!answers.includes(429)) {
    const names = Array.from({ length: 300 }, (_, index) => `random${answers.length + index}.example.com`)
    answers.push(...(await Promise.all(names.map(mayHave))))
  }
  assert.deepEqual(
    [...new Set(answers)].toSorted((a, b) => a - b),
    [404, 429],
  )
})
