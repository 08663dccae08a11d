/** When unverified domains are checked. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { beforeEach, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { newId } from '../../src/lib/id.ts'
import { FakeTxtRecords } from '../support/fake-txt-records.ts'
import { makeOrganisation } from '../support/sandbox-service.ts'
import { worlds } from './world.ts'

const signingSecret = randomBytes(32).toString('hex')
/** Longer than any test. */
const never = 24 * 3600 * 1000
const { makeWorld, sharedStore } = worlds()
let records: FakeTxtRecords
let domain: string

beforeEach(() => {
  records = new FakeTxtRecords()
  domain = `${newId('pv-')}.example.com`
})

/** A server over the shared store; the first timed check of a domain is after `domainCheckMs`. */
async function newServer(domainCheckMs: number) {
  const world = await makeWorld({ domainCheckMs }, { records, signingSecret })
  await world.service.start()
  return world
}

/** Leaves an unverified domain behind and publishes its record. */
async function leaveWaiting(): Promise<{ orgId: string; sandboxId: string }> {
  const { service, orgId } = await newServer(never)
  const sandboxId = newId('sb-')
  await service.create(orgId, { id: sandboxId })
  const { preview } = await service.previews.put(orgId, sandboxId, { port: 1, domain })
  assert.equal(preview.verifiedAt, undefined)
  await service.close()
  const record = service.previews.verification(preview)
  assert.ok(record)
  records.add(record)
  return { orgId, sandboxId }
}

const isVerified = async () => (await sharedStore().sandboxes.previewByHostname(domain)) !== undefined

test('custom domain: a restarted server resumes the checks, and stops when it has seen the record', async () => {
  await leaveWaiting()
  const { service } = await newServer(5)
  while (!(await isVerified())) await sleep(5)
  const { length } = records.asked
  await sleep(50)
  assert.equal(records.asked.length, length)
  await service.close()
})

test('custom domain: a list checks it, and any new declaration of the port', async () => {
  for (const call of ['list', 'put'] as const) {
    records = new FakeTxtRecords()
    domain = `${newId('pv-')}.example.com`
    const { orgId, sandboxId } = await leaveWaiting()
    const { service } = await newServer(never)
    assert.equal(await isVerified(), false, 'nobody has looked')
    const [preview] =
      call === 'list'
        ? await service.previews.list(orgId, sandboxId)
        : [(await service.previews.put(orgId, sandboxId, { port: 1, auth: null })).preview]
    assert.ok(preview?.verifiedAt, call)
    await service.close()
  }
})

test('custom domain: many unverified ones are all checked after a restart, a few at a time', async () => {
  const { service, orgId } = await newServer(never)
  const { sandbox } = await service.create(orgId, {})
  const ports = Array.from({ length: 60 }, (_, index) => index + 1)
  for (const port of ports) await service.previews.put(orgId, sandbox.id, { port, domain: `p${port}.${domain}` })
  await service.close()
  records.asked.length = 0
  let most = 0
  const resolve = records.resolveTxt.bind(records)
  records.resolveTxt = async (name, signal) => {
    most = Math.max(most, records.running + 1)
    records.delay = sleep(5)
    return await resolve(name, signal)
  }
  const second = await newServer(100)
  while (new Set(records.asked.filter((name) => name.endsWith(domain))).size < ports.length) await sleep(5)
  assert.ok(most <= 8, `${most} at a time`)
  await second.service.close()
})

test('custom domain: checks become less frequent, and end with its preview or sandbox', async () => {
  const { service, orgId } = await newServer(10)
  const { sandbox } = await service.create(orgId, {})
  const { sandbox: other } = await service.create(orgId, {})
  const looks = (suffix = domain) => records.asked.filter((name) => name.endsWith(suffix)).length
  // Each time is taken by the lookup itself: whoever polls may notice two of them at once.
  const times: number[] = []
  const resolve = records.resolveTxt.bind(records)
  records.resolveTxt = async (name, signal) => {
    if (name.endsWith(domain)) times.push(performance.now())
    return await resolve(name, signal)
  }
  await service.previews.put(orgId, sandbox.id, { port: 1, domain })
  while (times.length < 5) await sleep(1)
  const gaps = times.slice(1, 5).map((time, index) => time - (times[index] ?? 0))
  assert.ok((gaps.at(-1) ?? 0) >= 40, `the last of ${gaps.map(Math.round).join(', ')} ms is the longest`)

  await service.previews.delete(orgId, sandbox.id, 1)
  await service.previews.put(orgId, other.id, { port: 1, domain })
  await service.delete(orgId, other.id)
  // Another claim goes on, and each of its intervals is twice the last. By its sixth look a check of the others that was under way has
  // ended; by its ninth each of them would have had another, had it not ended.
  const going = `${newId('pv-')}.example.com`
  await service.previews.put(orgId, sandbox.id, { port: 2, domain: going })
  while (looks(going) < 6) await sleep(1)
  const left = looks()
  while (looks(going) < 9) await sleep(1)
  assert.equal(looks(), left)
  await service.close()
})

test('custom domain: a closing server waits for no name server and asks none any more', async () => {
  const { service, orgId, warnings } = await newServer(5)
  const { sandbox } = await service.create(orgId, {})
  records.delay = new Promise(() => {})
  const declared = service.previews.put(orgId, sandbox.id, { port: 1, domain })
  while (!records.asked.includes(`_atoll.${domain}`)) await sleep(1)
  await service.close()
  assert.equal(records.running, 0)
  // The store has unverified domains of earlier tests, which were checked too.
  const { length } = records.asked
  assert.equal((await declared).preview.customHostname, domain)
  await sleep(50)
  assert.equal(records.asked.length, length)
  assert.deepEqual(warnings, [])
})

test('custom domain: an organisation whose name servers say nothing holds up no other', async () => {
  const { service, orgId } = await newServer(never)
  const { id: other } = await makeOrganisation(sharedStore())
  const resolve = records.resolveTxt.bind(records)
  records.resolveTxt = async (name, signal) => {
    if (name.endsWith('.slow.example.com')) records.delay = new Promise(() => {})
    const answer = resolve(name, signal)
    records.delay = undefined
    return await answer
  }
  const { sandbox: slow } = await service.create(orgId, {})
  const ports = Array.from({ length: 70 }, (_, index) => index + 1)
  let answered = 0
  const declared = ports.map(async (port) => {
    await service.previews.put(orgId, slow.id, { port, domain: `p${port}.slow.example.com` })
    answered += 1
  })
  while (records.running < 8) await sleep(1)
  const { sandbox } = await service.create(other, {})
  const record = service.previews.verification({ orgId: other, customHostname: domain })
  assert.ok(record)
  records.add(record)
  const { preview } = await service.previews.put(other, sandbox.id, { port: 1, domain })
  assert.ok(preview.verifiedAt)
  while (answered < ports.length - 8) await sleep(1)
  assert.equal(records.running, 8, 'the others were not looked up')
  await service.close()
  await Promise.all(declared)
})

test('custom domain: a failing name server costs only that check', async () => {
  const { service, orgId, warnings } = await newServer(5)
  const { sandbox } = await service.create(orgId, {})
  const { preview } = await service.previews.put(orgId, sandbox.id, { port: 1, domain })
  const record = service.previews.verification(preview)
  assert.ok(record)
  records.resolveTxt = () => Promise.reject(new Error('SERVFAIL'))
  await sleep(20)
  records.resolveTxt = async () => [record.value]
  while (!(await isVerified())) await sleep(5)
  assert.deepEqual(warnings, [], 'a name server that fails is none of our business')
  await service.close()
})
