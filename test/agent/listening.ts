import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AgentProcess } from './agent-process.ts'
import type { HarnessUnderTest } from './conformance.ts'
import { environmentValues, filesWith, listeningPorts, processTree, sendRaw } from './listeners.ts'
import { World } from './world.ts'

const testMs = 60_000
/** Where the clients of the wires find their key. */
const keyNames = ['ANTHROPIC_API_KEY', 'OPENAI_API_KEY']

const content = [{ role: 'user', content: 'run: echo' }]
const wires: [path: string, body: object][] = [
  ['/anthropic/v1/messages', { model: 'demo', max_tokens: 100, messages: content }],
  ['/openai/v1/chat/completions', { model: 'demo', messages: content }],
  ['/openai/v1/responses', { model: 'demo', input: content }],
]

interface Ask {
  method?: string
  target?: string
  host: string | undefined
  headers?: string[]
}

async function ask(
  port: number,
  path: string,
  body: object,
  { method, target, host, headers = [] }: Ask,
): Promise<string> {
  const text = JSON.stringify(body)
  const head = [
    `${method ?? 'POST'} ${target ?? path} HTTP/1.1`,
    ...(host === undefined ? [] : [`Host: ${host}`]),
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(text)}`,
    ...(headers.some((header) => header.startsWith('Connection')) ? [] : ['Connection: close']),
    ...headers,
  ]
  return await sendRaw(port, head, text)
}

const statusOf = (answer: string) => Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0)

/** Requests of whoever has not the credential, and those that have it but come by another name. */
function strangers(port: number, credential: string): Record<string, Ask> {
  const host = `127.0.0.1:${port}`
  const right = `x-api-key: ${credential}`
  const wrong = `${credential.slice(0, -1)}${credential.endsWith('A') ? 'B' : 'A'}`
  return {
    'no credential': { host },
    'an empty one': { host, headers: ['x-api-key:', 'Authorization: Bearer '] },
    'the placeholder of before': { host, headers: ['x-api-key: atoll', 'Authorization: Bearer atoll'] },
    'a wrong one': { host, headers: [`x-api-key: ${wrong}`, `Authorization: Bearer ${wrong}`] },
    'one that goes on': { host, headers: [`x-api-key: ${credential}A`] },
    'one of another scheme': { host, headers: [`Authorization: Basic ${credential}`] },
    'one in the query': { host, target: `/?x-api-key=${credential}` },
    'an upgrade': { host, headers: ['Connection: Upgrade', 'Upgrade: websocket'] },
    'the host of a preview': { host: `sb-0123456789ab-p${port}.preview.localhost`, headers: [right] },
    'another port': { host: '127.0.0.1:3000', headers: [right] },
    'no port': { host: '127.0.0.1', headers: [right] },
    'another name of the loopback': { host: `localhost:${port}`, headers: [right] },
    'a name that means it': { host: `127.0.0.1.evil.example:${port}`, headers: [right] },
    'no host': { host: undefined, headers: [right] },
    'another host in the line': { host, target: `http://evil.example/anthropic/v1/messages`, headers: [right] },
    'a tunnel': { host, method: 'CONNECT', target: host, headers: [right] },
    'another method': { host, method: 'GET', headers: [right] },
    'another path': { host, target: '/anthropic/v1/complete', headers: [right] },
  }
}

/** Waits for a command of the turn, in the tree of the agent. */
async function commandRuns(agent: AgentProcess, words: string): Promise<number[]> {
  for (;;) {
    const tree = processTree(agent.pid)
    const lines = tree.map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
      } catch {
        return ''
      }
    })
    if (lines.some((line) => line.includes(`\0${words}\0`))) return tree
    await sleep(20)
  }
}

/** What every harness that is a process of its own, or listens on anything, keeps to. */
export function listeningConformance({ name, harness, env = {}, needsProxy }: HarnessUnderTest): void {
  test(
    `${name}: nothing that the agent listens on asks the model for who has not its credential, or comes by another host`,
    { timeout: testMs },
    async () => {
      await using world = await World.create()
      await using agent = await world.agent({ harness: await harness() }, env)
      const script = 'import time; time.sleep(32.25)'
      agent.send({ type: 'message', messageId: 'msg_1', content: `run: python3 -c '${script}'` })
      const tree = await commandRuns(agent, script)
      const ports = listeningPorts(tree)
      assert.equal(ports.length > 0, needsProxy)
      const credentials = [...new Set(keyNames.flatMap((key) => environmentValues(tree, key)))]
      assert.equal(credentials.length, needsProxy ? 1 : 0)
      const [credential = ''] = credentials
      const { asked } = world
      for (const port of ports) {
        for (const [path, body] of wires) {
          for (const [who, request] of Object.entries(strangers(port, credential))) {
            const status = statusOf(await ask(port, path, body, request))
            assert.ok(status === 0 || status >= 400, `${path}, ${who}: ${status}`)
          }
        }
      }
      assert.equal(world.asked, asked, 'the gateway was asked')
      if (needsProxy) {
        assert.ok(Buffer.from(credential, 'base64url').length >= 32)
        assert.deepEqual(filesWith(world.folder, credential), [], 'the credential is on the disk')
        const answers = await Promise.all(ports.flatMap((port) => known(port, credential)))
        assert.deepEqual(
          answers.filter((status) => status === 200).length,
          2 * wires.length,
          'one port asks the model for who has the credential',
        )
        assert.equal(world.asked, asked + 2 * wires.length)
      }
      agent.send({ type: 'interrupt', messageId: 'msg_1' })
      await agent.event('turn_complete')
    },
  )

  test(
    `${name}: the credential is told to nobody, and is another one in each process`,
    { timeout: testMs },
    async () => {
      await using world = await World.create()
      const seen = new Set<string>()
      for (const messageId of ['msg_1', 'msg_2']) {
        await using agent = await world.agent({ harness: await harness() }, env)
        await agent.turn(messageId, `run: env; env > ${world.folder}/environment`)
        const environment = readFileSync(`${world.folder}/environment`, 'utf8').split('\n')
        const [credential] = environment.flatMap((line) =>
          keyNames.filter((key) => line.startsWith(`${key}=`)).map((key) => line.slice(key.length + 1)),
        )
        assert.equal(credential !== undefined, needsProxy)
        if (credential === undefined) continue
        seen.add(credential)
        assert.doesNotMatch(JSON.stringify(agent.events) + agent.stderr, new RegExp(credential))
        assert.match(JSON.stringify(agent.events), /_API_KEY=\[[^\]]+\]/)
      }
      assert.equal(seen.size, needsProxy ? 2 : 0)
    },
  )
}

/** As the clients of both wires send it. */
function known(port: number, credential: string): Promise<number>[] {
  const host = `127.0.0.1:${port}`
  return wires.flatMap(([path, body]) =>
    [`x-api-key: ${credential}`, `Authorization: Bearer ${credential}`].map(async (header) =>
      statusOf(await ask(port, path, body, { host, headers: [header] })),
    ),
  )
}
