import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { readFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { verifyWebhook, Webhooks } from '@opencomputer/sdk'
import { Webhook } from 'standardwebhooks'
import { findSystemUser } from '../../src/lib/system-user.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { roundsOf } from '../../src/lib/testing/thorough.ts'
import { newestBinaries } from '../../src/postgres/binaries.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { type LiveProcess, liveProcesses } from '../support/host-processes.ts'
import { AtollServer } from './server.ts'

const rounds = roundsOf(2, 30)

interface Received {
  id: string
  type: string
  eventId: string
  sandboxId: string
  headers: Record<string, string>
  body: string
}

/** A receiver of webhooks on this machine. */
class Receiver {
  readonly received: Received[] = []
  answer: (request: IncomingMessage, response: ServerResponse) => void = (_request, response) => void response.end('ok')
  readonly #server = createServer((request, response) => void this.#take(request, response))
  #news = Promise.withResolvers<void>()

  static async start(): Promise<Receiver> {
    const receiver = new Receiver()
    receiver.#server.listen(0, '127.0.0.1')
    await once(receiver.#server, 'listening')
    after(() => {
      receiver.#server.closeAllConnections()
      receiver.#server.close()
    })
    return receiver
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/hook`
  }

  /** Resolves when what has come satisfies the condition. */
  async until(condition: (received: readonly Received[]) => boolean): Promise<void> {
    while (!condition(this.received)) await this.#news.promise
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
    const body = Buffer.concat(chunks).toString()
    const headers = request.headers as Record<string, string>
    const { type, eventId, sandboxId } = JSON.parse(body) as Received
    this.received.push({ id: headers['svix-id'] ?? '', type, eventId, sandboxId, headers, body })
    this.answer(request, response)
    this.#news.resolve()
    this.#news = Promise.withResolvers()
  }
}

const server = await AtollServer.startForFile({ env: { ATOLL_WEBHOOK_TARGETS: '127.0.0.1' } })

async function call(method: string, path: string, body?: object) {
  const response = await fetch(server.url + path, {
    method,
    headers: { 'x-api-key': server.key, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  assert.ok(response.ok, `${method} ${path} ${response.status} ${text}`)
  return text === '' ? undefined : JSON.parse(text)
}

/** A receiver that answers late gets a message again, under the same id. */
const typesOf = (received: readonly Received[]) => [...new Map(received.map(({ id, type }) => [id, type])).values()]

test(
  'webhooks: the class of the public SDK works unchanged, and its check takes what is sent',
  { timeout: 300_000 },
  async () => {
    const receiver = await Receiver.start()
    const webhooks = new Webhooks({ apiUrl: server.url, apiKey: server.key })
    const made = await webhooks.create({ url: receiver.url, name: 'mine', eventTypes: ['sandbox.*'] })
    assert.match(made.secret ?? '', /^whsec_/)
    assert.deepEqual((await webhooks.get(made.id)).eventTypes, ['sandbox.*'])
    assert.equal(await webhooks.getSecret(made.id), made.secret)
    assert.ok((await webhooks.list()).some(({ id }) => id === made.id))
    const { sandboxID } = await call('POST', '/api/sandboxes', {})
    await call('DELETE', `/api/sandboxes/${sandboxID}`)
    await receiver.until((all) => typesOf(all).includes('sandbox.stopped'))
    assert.deepEqual(typesOf(receiver.received), ['sandbox.created', 'sandbox.ready', 'sandbox.stopped'], 'in order')
    for (const { headers, body, eventId } of receiver.received) {
      const event = await verifyWebhook(body, headers, made.secret ?? '')
      assert.equal(event.eventId, eventId)
      new Webhook(made.secret ?? '').verify(body, headers)
    }
    const states = async () => {
      const { data } = await call('GET', `/api/webhooks/${made.id}/deliveries`)
      return data.map(({ status }: { status: string }) => status).toString()
    }
    // An attempt is written down after its answer.
    await eventually(async () => (await states()).match(/success/g)?.length === 3)
    const [first] = receiver.received
    await webhooks.deliveries.redeliver(made.id, first!.id)
    await receiver.until((all) => all.filter(({ id }) => id === first!.id).length === 2)
    const { messageId } = await webhooks.test(made.id)
    await receiver.until((all) => all.some(({ id }) => id === messageId))
    const renewed = await webhooks.update(made.id, { rotateSecret: true })
    const { messageId: next } = await webhooks.test(made.id)
    await receiver.until((all) => all.some(({ id }) => id === next))
    const signed = receiver.received.find(({ id }) => id === next)!
    for (const secret of [made.secret, renewed.secret]) await verifyWebhook(signed.body, signed.headers, secret ?? '')
    await webhooks.delete(made.id)
    await assert.rejects(webhooks.get(made.id))
  },
)

test(
  'webhooks: those of a create get what its sandbox does from the beginning, and nothing of others',
  { timeout: 300_000 },
  async () => {
    const receiver = await Receiver.start()
    const other = await call('POST', '/api/sandboxes', {})
    const started = await call('POST', '/api/sandboxes', { webhooks: [{ url: receiver.url }] })
    assert.match(started.webhooks[0].secret, /^whsec_/)
    await call('DELETE', `/api/sandboxes/${other.sandboxID}`)
    await call('DELETE', `/api/sandboxes/${started.sandboxID}`)
    await receiver.until((all) => typesOf(all).includes('sandbox.stopped'))
    assert.deepEqual(typesOf(receiver.received), ['sandbox.created', 'sandbox.ready', 'sandbox.stopped'])
    assert.deepEqual([...new Set(receiver.received.map(({ sandboxId }) => sandboxId))], [started.sandboxID])
  },
)

test(
  'webhooks: a receiver that fails gets the message again under the same id, and another is not kept waiting',
  { timeout: 300_000 },
  async () => {
    const [failing, hanging, well] = [await Receiver.start(), await Receiver.start(), await Receiver.start()]
    let refusals = 1
    failing.answer = (_request, response) => {
      response.statusCode = refusals-- > 0 ? 500 : 200
      response.end()
    }
    hanging.answer = () => undefined
    const made: { id: string }[] = []
    for (const receiver of [failing, hanging, well]) {
      made.push(await call('POST', '/api/webhooks', { url: receiver.url, eventTypes: ['sandbox.created'] }))
    }
    const { sandboxID } = await call('POST', '/api/sandboxes', {})
    await well.until((all) => all.length === 1)
    await failing.until((all) => all.length === 2)
    assert.equal(new Set(failing.received.map(({ id }) => id)).size, 1)
    const data = await eventually(async () => {
      const { data: attempts } = await call('GET', `/api/webhooks/${made[0]!.id}/deliveries`)
      return attempts.length === 2 && attempts
    })
    assert.deepEqual(
      data.map(({ status, responseStatusCode }: Record<string, unknown>) => [status, responseStatusCode]),
      [
        ['success', 200],
        ['failed', 500],
      ],
    )
    for (const { id } of made) await call('DELETE', `/api/webhooks/${id}`)
    await call('DELETE', `/api/sandboxes/${sandboxID}`)
  },
)

test(
  'webhooks: what happens while a destination is disabled comes when it is enabled',
  { timeout: 300_000 },
  async () => {
    const receiver = await Receiver.start()
    const { id } = await call('POST', '/api/webhooks', {
      url: receiver.url,
      enabled: false,
      eventTypes: ['sandbox.created'],
    })
    const { sandboxID } = await call('POST', '/api/sandboxes', {})
    for (let data = []; data.length === 0;) ({ data } = await call('GET', `/api/webhooks/${id}/deliveries`))
    assert.equal(receiver.received.length, 0)
    await call('PATCH', `/api/webhooks/${id}`, { enabled: true })
    await receiver.until((all) => all.length === 1)
    await call('DELETE', `/api/webhooks/${id}`)
    await call('DELETE', `/api/sandboxes/${sandboxID}`)
  },
)

test(
  'webhooks: nothing is lost, and nothing comes twice under two ids, whatever is killed',
  { timeout: 1_800_000 },
  async () => {
    const receiver = await Receiver.start()
    const { id } = await call('POST', '/api/webhooks', { url: receiver.url, eventTypes: ['volume.*'] })
    const made: string[] = []
    for (let round = 0; round < rounds; round++) {
      for (let count = 0; count < 10; count++) {
        const name = `killed-${round}-${count}`
        await call('POST', '/api/volumes', { name })
        made.push(name)
      }
      if (round % 2 === 0) {
        await server.kill()
        await server.restart()
      } else {
        const pid = await deliveryPid()
        process.kill(pid, 'SIGKILL')
      }
    }
    const events = (await call('GET', '/api/events?follow=false&type=volume.created&limit=1000')).events
    const expected = new Set(events.map((event: { id: string }) => event.id))
    assert.equal(expected.size, made.length)
    await receiver.until((all) => new Set(all.map(({ eventId }) => eventId)).size === expected.size)
    const idsByEvent = Map.groupBy(receiver.received, ({ eventId }) => eventId)
    for (const [eventId, received] of idsByEvent) {
      assert.ok(expected.has(eventId))
      assert.equal(new Set(received.map((one) => one.id)).size, 1, eventId)
    }
    await call('DELETE', `/api/webhooks/${id}`)
  },
)

test('webhooks: the process that sends them ends with a killed server', { timeout: 300_000 }, async () => {
  const receiver = await Receiver.start()
  await call('POST', '/api/webhooks', { url: receiver.url })
  const pid = await deliveryPid()
  await server.kill()
  while (isAlive(pid)) await sleep(20)
  await server.restart()
  assert.notEqual(await deliveryPid(), pid)
})

test(
  'webhooks: the process that sends them is no root, and reads nothing but what it sends',
  { timeout: 300_000 },
  async () => {
    const receiver = await Receiver.start()
    const { id } = await call('POST', '/api/webhooks', { url: receiver.url })
    await call('POST', `/api/webhooks/${id}/test`)
    await receiver.until((all) => all.length === 1)
    const { uid, gid } = await findSystemUser('webhooks')
    const status = await readFile(`/proc/${await deliveryPid()}/status`, 'utf8')
    const rows = new Map(status.split('\n').map((line) => line.split(/:\t/) as [string, string]))
    assert.equal(rows.get('Uid'), [uid, uid, uid, uid].join('\t'))
    assert.equal(rows.get('Gid'), [gid, gid, gid, gid].join('\t'))
    assert.equal(rows.get('Groups')?.trim(), '')
    for (const set of ['CapEff', 'CapPrm', 'CapInh', 'CapAmb']) assert.match(rows.get(set) ?? '', /^0+$/, set)
    assert.equal(rows.get('NoNewPrivs'), '1')

    const psql = `${(await newestBinaries()).folder}/psql`
    const query = async (role: string, text: string) => {
      const address = `host=${new HostNames(server.dataDir).databaseDir} user=${role} dbname=atoll`
      const words = [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', '--', psql, '-XAtc', text, address]
      return (await promisify(execFile)('setpriv', words, { cwd: '/' })).stdout.trim()
    }
    assert.notEqual(await query('atoll_webhooks', 'select count(*) from webhook_messages'), '0')
    for (const table of ['sandboxes', 'api_keys', 'organisations', 'audit_entries', 'events', 'webhook_cursors']) {
      await assert.rejects(query('atoll_webhooks', `select * from ${table}`), /permission denied/, table)
    }
    await assert.rejects(query('atoll_webhooks', `update webhook_destinations set url = 'x'`), /permission denied/)
    await assert.rejects(query('atoll', 'select 1'), /Peer authentication failed/)
    await assert.rejects(query('atoll_admin', 'select 1'), /Peer authentication failed/)
  },
)

/** Of the child of the server that sends. */
async function deliveryPid(): Promise<number> {
  for (;;) {
    const isIt = ({ command, parent }: LiveProcess) =>
      command.includes('webhook/delivery/main.ts') && parent === server.pid
    const found = (await liveProcesses()).find(isIt)
    if (found !== undefined) return found.pid
    await sleep(50)
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
