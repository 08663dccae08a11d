/** What a stranger reaches of a session's agent through previews. */
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { once } from 'node:events'
import { request, type IncomingMessage } from 'node:http'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { DnsServer } from '../support/dns-server.ts'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { ModelServer } from './model-server.ts'
import { askPreview } from './preview.ts'
import { sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { createSession, endSession, resultOf } from './session-client.ts'

const agentFile = '/opt/agent.mjs'
const body = JSON.stringify({
  model: 'some-model',
  max_tokens: 100,
  messages: [{ role: 'user', content: 'run: echo' }],
})

const model = await ModelServer.start()
const dns = await DnsServer.start()
const server = await AtollServer.startForFile({
  env: {
    ANTHROPIC_BASE_URL: model.baseUrl,
    ATOLL_MODEL: 'anthropic/some-model',
    ATOLL_PUBLIC_URL: 'http://api.example.org',
    ATOLL_DNS_SERVERS: dns.address,
    ATOLL_LIMITS: JSON.stringify({ sandbox: { domainCheckMs: 100 } }),
  },
})
after(() => Promise.all([model, dns].map((started) => started[Symbol.asyncDispose]())))

/** A checkpoint of a machine on which an agent is installed that speaks ACP and has a server of its own. */
async function machineWithAgent(): Promise<string> {
  const sandboxId = await startSandbox(server)
  const program = await readFile(join(import.meta.dirname, '../agent/fake-acp-agent.mjs'))
  await server.fetch(`/api/sandboxes/${sandboxId}/files?path=${agentFile}`, { method: 'PUT', body: program })
  return await takeCheckpoint(server, sandboxId, 'with-agent', 'disk_only')
}

/** The ports on which anything listens inside, by the kernel's tables. */
async function listeningPorts(sandboxId: string): Promise<number[]> {
  const ports = await sh(
    server,
    sandboxId,
    `awk '$4 == "0A" { sub(".*:", "", $2); print $2 }' /proc/net/tcp /proc/net/tcp6`,
  )
  return [...new Set(ports.split('\n').map((port) => Number.parseInt(port, 16)))]
}

/** Asks a preview for an answer of the model; returns the status. */
async function askModel(host: string, headers: Record<string, string>): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  const options = { host: '127.0.0.1', port: server.port, method: 'POST', path: '/anthropic/v1/messages' }
  const asked = request({ ...options, headers: { ...headers, Host: host } }, (answer) => {
    answer.resume().once('end', () => resolve(answer.statusCode ?? 0))
  })
  asked.on('error', reject)
  asked.end(body)
  return await promise
}

function tunnelTo(sandboxId: string, port: number): WebSocket {
  const address = `ws://127.0.0.1:${server.port}/api/sandboxes/${sandboxId}/ports/${port}/tunnel`
  return new WebSocket(address, { headers: { 'X-API-Key': server.key } })
}

/** What the owner of the sandbox gets by the API: the status of a request, and that of a refused tunnel. */
async function askByApi(sandboxId: string, port: number): Promise<unknown[]> {
  const path = `/api/sandboxes/${sandboxId}/ports/${port}/proxy/anthropic/v1/messages`
  const { status } = await server.fetch(path, { method: 'POST', body })
  const socket = tunnelTo(sandboxId, port)
  socket.on('error', () => {})
  const [, answer] = (await once(socket, 'unexpected-response')) as [unknown, IncomingMessage]
  socket.terminate()
  return [status, answer.statusCode]
}

async function proveDomain(sandboxId: string, port: number, domain: string): Promise<void> {
  const path = `/api/sandboxes/${sandboxId}/preview`
  const { verification } = (await server.json('POST', path, { port, domain })) as {
    verification: { name: string; value: string }
  }
  dns.texts.set(verification.name, [[verification.value]])
  const isPending = async () => {
    const previews = (await server.json('GET', path)) as { port: number; sslStatus: string }[]
    return previews.some((preview) => preview.port === port && preview.sslStatus === 'pending')
  }
  while (await isPending()) await sleep(50)
}

/** What each port says to a stranger, and to a stranger with the credential. */
async function knock(sandboxId: string, ports: readonly number[], credential: string): Promise<Map<number, number[]>> {
  const statuses = new Map<number, number[]>()
  for (const port of ports) {
    const host = `${sandboxId}-p${port}.preview.localhost`
    const json = { 'Content-Type': 'application/json' }
    statuses.set(port, [await askModel(host, json), await askModel(host, { ...json, 'X-API-Key': credential })])
  }
  return statuses
}

test('previews: a stranger gets no answer of the model through previews, whatever listens inside; the page is there', async () => {
  const serve = 'echo tides > index.html; nohup python3 -m http.server 3000 >/dev/null 2>&1 &'
  const waits = 'until (echo > /dev/tcp/127.0.0.1/3000) 2>/dev/null; do sleep 0.05; done'
  const session = await createSession(server, `run: ${serve} ${waits}`, {
    checkpoint_id: await machineWithAgent(),
    agent_config: { harness: `acp:node ${agentFile} serves` },
  })
  const { sandboxId } = session
  const events = await readEvents(server, session.id, isTurnComplete)
  assert.equal(resultOf(events)?.['subtype'], 'success')

  const credential = await sh(
    server,
    sandboxId,
    `tr '\\0' '\\n' < /proc/$(pgrep -f '^node ${agentFile}')/environ | sed -n s/^ANTHROPIC_API_KEY=//p`,
  )
  const ports = await listeningPorts(sandboxId)
  // The page, the agent's proxy, and the server of the agent's program.
  assert.equal(ports.length, 3)
  const agents = ports.filter((port) => port !== 3000)

  const assertRefused = async () => {
    for (const [port, statuses] of await knock(sandboxId, agents, credential)) {
      assert.deepEqual(statuses, [403, 403], `port ${port}`)
    }
    assert.deepEqual(model.answers, [], 'the model was asked')
    for (const port of agents) assert.deepEqual(await askByApi(sandboxId, port), [403, 403])
    const page = await askPreview(server, `${sandboxId}-p3000.preview.localhost`)
    assert.deepEqual([page.status, page.body], [200, 'tides\n'])
    const byApi = await server.fetch(`/api/sandboxes/${sandboxId}/ports/3000/proxy/index.html`)
    assert.equal(await byApi.text(), 'tides\n')
  }
  await assertRefused()
  // Declared, and by a domain of its own.
  for (const [index, port] of agents.entries()) {
    const domain = `port${index}.example.com`
    await proveDomain(sandboxId, port, domain)
    assert.equal(await askModel(domain, { 'Content-Type': 'application/json' }), 403)
  }
  // What lies in memory knows it too.
  await server.json('POST', `/api/sandboxes/${sandboxId}/hibernate`)
  await assertRefused()
  assert.ok(credential.length >= 32)
  // A client that has ended its side still gets the answer.
  const tunnel = tunnelTo(sandboxId, 3000)
  await once(tunnel, 'open')
  const messages: string[] = []
  tunnel.on('message', (message: Buffer) => messages.push(message.toString()))
  tunnel.send(Buffer.from('GET /index.html HTTP/1.0\r\n\r\n'))
  tunnel.send('{"type":"end"}')
  assert.equal((await once(tunnel, 'close'))[0], 1000)
  assert.match(messages.join(''), /^HTTP\/1\.0 200 [^]*tides\n\{"type":"end"\}$/)
  // Inside, a command gets no answer with the credential, but through the server of the program: the model answers the program.
  const asks = `printf '%s' '${body}' | curl -s -o /dev/null -w '%{http_code}' --data-binary @- -H "x-api-key: ${credential}"`
  const inside = await Promise.all(
    agents.map((port) => sh(server, sandboxId, `${asks} http://127.0.0.1:${port}/anthropic/v1/messages`)),
  )
  assert.deepEqual(inside.toSorted(), ['200', '403'])
  assert.deepEqual(model.answers, [200])
  await endSession(server, session.id)
})
