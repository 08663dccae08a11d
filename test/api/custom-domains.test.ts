/** A domain leads to a sandbox when DNS shows that its owner wants it to. */
import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { type ApiAnswer, type ApiClient, exchange } from '../support/api-client.ts'
import { usePreview } from '../support/preview-world.ts'
import { makeWorld } from '../support/world.ts'

/** Between two lookups of a name, also by the server itself. Long enough that a lookup is over before the next. */
const domainCheckMs = 50
let count = 0
let domain: string
const preview = usePreview({}, { sandboxLimits: { domainCheckMs }, edge: { port: 1 } })

beforeEach(() => {
  count++
  domain = `shop${count}.example.com`
})

async function declare(client: ApiClient, sandboxId: string, name = domain, port = preview.port): Promise<ApiAnswer> {
  return await client.post(`/api/sandboxes/${sandboxId}/preview`, { port, domain: name })
}

async function newSandbox(client: ApiClient): Promise<string> {
  return (await client.post('/api/sandboxes', {})).body.sandboxID as string
}

async function leadsInside(name = domain): Promise<boolean> {
  return (await preview.ask('/readyz', {}, name)).text === 'hello from /readyz'
}

async function untilInside(name = domain): Promise<void> {
  await eventually(() => leadsInside(name))
}

async function mayHaveCertificate(name = domain): Promise<boolean> {
  const { status } = await preview.world.api.get(`/internal/tls-ask?domain=${name}`, { key: null })
  assert.ok(status === 200 || status === 404)
  return status === 200
}

/** Once the last lookup of the name counts no more. */
async function forgotten(): Promise<void> {
  await sleep(domainCheckMs + 5)
}

async function listed(client: ApiClient, sandboxId: string, name = domain) {
  const { body } = await client.get(`/api/sandboxes/${sandboxId}/preview`)
  return body.find((one: { customHostname?: string }) => one.customHostname === name)
}

test('custom domain: without its record it leads nowhere, gets no certificate, and says which record it waits for', async () => {
  const { api } = preview.world
  const id = await newSandbox(api)
  const { status, body } = await declare(api, id)
  assert.deepEqual([status, body.sslStatus], [201, 'pending'])
  assert.equal(body.verification.name, `_atoll.${domain}`)
  assert.match(body.verification.value, /^atoll-verification=[0-9a-f]{64}$/)
  assert.deepEqual((await listed(api, id)).verification, body.verification)
  assert.deepEqual([await leadsInside(), await mayHaveCertificate()], [false, false])
  // As any name that nobody has declared.
  assert.equal((await preview.ask('/healthz', {}, domain)).status, 200)
  assert.deepEqual(
    (await preview.ask('/x', {}, domain)).body,
    (await preview.ask('/x', {}, 'unknown.example.com')).body,
  )

  preview.world.records.add(body.verification)
  await untilInside()
  assert.equal(await mayHaveCertificate(), true)
  const verified = await listed(api, id)
  assert.deepEqual([verified.sslStatus, verified.verification], ['pending', body.verification], 'no certificate yet')
})

test('custom domain: a record that is there already is seen at once', async () => {
  preview.world.prove(domain)
  assert.equal((await declare(preview.world.api, await newSandbox(preview.world.api))).status, 201)
  assert.equal(await leadsInside(), true)
})

test('custom domain: only the very value counts, whatever else the name holds', async () => {
  const { api, records, orgId } = preview.world
  const id = await newSandbox(api)
  const { name, value } = (await declare(api, id)).body.verification
  const others = ['', 'v=spf1 -all', value.toUpperCase(), ` ${value}`, `${value} `, `"${value}"`, value.slice(0, -1)]
  others.push(`${value}0`, value.slice(value.indexOf('=') + 1), '*', orgId, 'x'.repeat(60_000))
  records.texts.set(name, others)
  await forgotten()
  assert.equal((await declare(api, id)).body.sslStatus, 'pending')
  assert.equal(await leadsInside(), false)
  records.texts.set(domain, [value])
  records.texts.set('_atoll.example.com', [value])
  await forgotten()
  await declare(api, id)
  assert.equal(await leadsInside(), false, 'and at no other name')
  records.texts.set(name, [...others, value])
  await untilInside()
})

test('custom domain: claims without a record block nobody, and each organisation has a record of its own', async () => {
  const { api, stranger, strangerOrgId } = preview.world
  const [mine, theirs] = [await newSandbox(api), await newSandbox(stranger)]
  const first = await declare(stranger, theirs)
  const second = await declare(api, mine)
  assert.deepEqual([first.status, second.status], [201, 201])
  assert.equal(first.body.verification.name, second.body.verification.name)
  assert.notEqual(first.body.verification.value, second.body.verification.value)
  preview.world.prove(domain)
  await untilInside()
  assert.equal((await preview.world.store.sandboxes.previewByHostname(domain))?.sandboxId, mine)
  assert.equal((await listed(stranger, theirs)).sslStatus, 'pending')

  const refused = await declare(stranger, theirs)
  assert.deepEqual([refused.status, refused.body.code, refused.body.field], [409, 'conflict', 'domain'])
  assert.deepEqual(refused.body.verification, first.body.verification, 'the refusal says how to take it over')
  preview.world.prove(domain, strangerOrgId)
  await forgotten()
  assert.equal((await declare(stranger, theirs)).status, 409, 'while the record of the first is there')
  assert.equal((await preview.world.store.sandboxes.previewByHostname(domain))?.sandboxId, mine)
})

test('custom domain: one that has changed hands goes to whose record is there, alone', async () => {
  const { api, stranger, records, store } = preview.world
  const [mine, theirs] = [await newSandbox(api), await newSandbox(stranger)]
  preview.world.prove(domain)
  const own = (await declare(api, mine)).body.verification
  const theirRecord = (await declare(stranger, theirs)).body.verification
  const holder = async () => (await store.sandboxes.previewByHostname(domain))?.sandboxId

  // A record that is gone alone changes nothing: it may come back.
  records.remove(own)
  await forgotten()
  assert.equal((await declare(api, mine)).status, 200)
  assert.equal(await holder(), mine)

  records.isDown = true
  records.add(theirRecord)
  await forgotten()
  assert.equal((await declare(stranger, theirs)).status, 409, 'what is not known is no reason')
  records.isDown = false
  await forgotten()
  const taken = await declare(stranger, theirs)
  assert.deepEqual([taken.status, await holder()], [201, theirs])
  assert.equal((await listed(api, mine)).sslStatus, 'pending')
  assert.equal((await declare(api, mine)).status, 409)
})

test('custom domain: one that waits takes over by itself when the records change', async () => {
  const { api, stranger, strangerOrgId, records, store } = preview.world
  const [mine, theirs] = [await newSandbox(api), await newSandbox(stranger)]
  await declare(stranger, theirs)
  preview.world.prove(domain)
  await forgotten()
  const { verification } = (await declare(api, mine)).body
  assert.equal((await store.sandboxes.previewByHostname(domain))?.sandboxId, mine)
  records.remove(verification)
  preview.world.prove(domain, strangerOrgId)
  await eventually(async () => (await store.sandboxes.previewByHostname(domain))?.sandboxId === theirs)
})

test('custom domain: a deleted sandbox gives it free to who proves it, not to anybody', async () => {
  const { api, stranger, strangerOrgId, store } = preview.world
  const [mine, theirs] = [await newSandbox(api), await newSandbox(stranger)]
  preview.world.prove(domain)
  await declare(api, mine)
  assert.equal(await leadsInside(), true)
  await api.delete(`/api/sandboxes/${mine}`)
  // DNS still leads here, with the record of the first.
  const { status, body } = await declare(stranger, theirs)
  assert.deepEqual([status, body.sslStatus], [201, 'pending'])
  assert.deepEqual([await leadsInside(), await mayHaveCertificate()], [false, false])

  const next = await newSandbox(api)
  assert.equal((await declare(api, next)).status, 201)
  assert.equal(await leadsInside(), true, 'the same organisation needs no new record')
  await api.delete(`/api/sandboxes/${next}`)
  preview.world.prove(domain, strangerOrgId)
  await eventually(async () => (await store.sandboxes.previewByHostname(domain))?.sandboxId === theirs)
  assert.equal(await leadsInside(), true)
})

test('custom domain: of an organisation one preview has it, verified or not', async () => {
  const { api } = preview.world
  const [one, other] = [await newSandbox(api), await newSandbox(api)]
  assert.equal((await declare(api, one)).status, 201)
  for (const [id, port] of [
    [other, preview.port],
    [one, 9],
  ] as const) {
    const { status, body } = await declare(api, id, domain, port)
    assert.deepEqual([status, body.code], [409, 'conflict'])
  }
  await api.delete(`/api/sandboxes/${one}/preview/${preview.port}`)
  preview.world.prove(domain)
  await forgotten()
  assert.equal((await declare(api, other)).status, 201)
  assert.equal(await leadsInside(), true)
})

test('custom domain: another name of the same preview needs a proof of its own', async () => {
  const { api } = preview.world
  const id = await newSandbox(api)
  preview.world.prove(domain)
  await declare(api, id)
  const other = `other-${domain}`
  const { status, body } = await declare(api, id, other)
  assert.deepEqual([status, body.customHostname, body.sslStatus], [200, other, 'pending'])
  assert.deepEqual([await leadsInside(domain), await leadsInside(other)], [false, false])
  preview.world.prove(other)
  await untilInside(other)
  await declare(api, id, domain)
  assert.deepEqual([await leadsInside(domain), await leadsInside(other)], [true, false])
})

test('custom domain: a name server that says nothing holds up no answer, and what it says late counts', async () => {
  await using world = await makeWorld({ publicUrl: 'http://api.test', sandboxLimits: { domainAnswerWaitMs: 500 } })
  const { api, records } = world
  const id = await newSandbox(api)
  world.prove(domain)
  const answer = Promise.withResolvers<void>()
  records.delay = answer.promise
  try {
    const { status, body } = await declare(api, id)
    assert.deepEqual([status, body.sslStatus], [201, 'pending'])
    assert.ok(records.running > 0, 'the lookup goes on')
  } finally {
    records.delay = undefined
    answer.resolve()
  }
  const ask = async () => await exchange(`${world.origin}/readyz`, { headers: { host: domain } })
  await eventually(async () => (await ask()).text === 'hello from /readyz')
})

test('custom domain: lookups are few, however often and for how many names they are asked', async () => {
  const sandboxLimits = { domainAnswerWaitMs: 500, domainCheckMs: 600_000 }
  await using world = await makeWorld({ publicUrl: 'http://api.test', sandboxLimits })
  const path = `/api/sandboxes/${await world.sandbox()}/preview`
  const answer = Promise.withResolvers<void>()
  world.records.delay = answer.promise
  const ports = Array.from({ length: 30 }, (_, index) => index + 1)
  const declared = ports.map((port) => world.api.post(path, { port, domain: `a${port}.example.com` }))
  const theirs = (await world.stranger.post('/api/sandboxes', {})).body.sandboxID as string
  const other = world.stranger.post(`/api/sandboxes/${theirs}/preview`, { port: 1, domain: 'b.example.com' })
  await eventually(() => world.records.asked.includes('_atoll.b.example.com'))
  for (const { status, body } of await Promise.all([...declared, other])) {
    assert.deepEqual([status, body.sslStatus], [201, 'pending'])
  }
  assert.equal(world.records.running, 9, 'eight of the one organisation, and one of the other')
  answer.resolve()
  world.records.delay = undefined
  await eventually(() => world.records.running === 0)

  const name = `_atoll.${(await world.api.get(path)).body.at(-1).customHostname}`
  for (let round = 0; round < 20; round++) await world.api.get(path)
  assert.equal(world.records.asked.filter((asked) => asked === name).length, 1, 'what is known is not asked again')
})

test('custom domain: an organisation has only so many that wait', async () => {
  await using world = await makeWorld({ publicUrl: 'http://api.test', sandboxLimits: { unverifiedDomainsMax: 3 } })
  const id = await world.sandbox()
  const path = `/api/sandboxes/${id}/preview`
  const ports = Array.from({ length: 10 }, (_, index) => index + 1)
  const answers = await Promise.all(ports.map((port) => world.api.post(path, { port, domain: `a${port}.example.com` })))
  assert.equal(answers.filter(({ status }) => status === 201).length, 3)
  for (const { status, body } of answers) if (status !== 201) assert.deepEqual([status, body.field], [409, 'domain'])
  const [waiting] = (await world.api.get(path)).body
  assert.equal((await world.api.post(path, { port: waiting.port, domain: 'other.example.com' })).status, 200)
  assert.equal((await world.api.post(path, { port: 99 })).status, 201, 'a preview without a domain')
  const theirs = (await world.stranger.post('/api/sandboxes', {})).body.sandboxID as string
  const other = await world.stranger.post(`/api/sandboxes/${theirs}/preview`, { port: 1, domain: 'a1.example.com' })
  assert.equal(other.status, 201, 'others have their own')
  world.prove('other.example.com')
  await eventually(async () => (await world.api.post(path, { port: 98, domain: 'next.example.com' })).status === 201)
})

test('custom domain: a name is refused when its record could not have one', async () => {
  const { api } = preview.world
  const id = await newSandbox(api)
  const labels = `${'a'.repeat(60)}.`.repeat(3)
  const ofLength = (length: number) => `${labels}${'b'.repeat(length - labels.length - '.com'.length)}.com`
  const fits = await declare(api, id, ofLength(246), 7)
  assert.deepEqual([fits.status, fits.body.verification.name.length], [201, 253])
  const { status, body } = await declare(api, id, ofLength(247), 8)
  assert.deepEqual([status, body.field], [400, 'domain'])
})
