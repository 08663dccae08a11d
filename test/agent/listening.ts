import assert from 'node:assert/strict'
import { readdirSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { linksIn, textOf } from '../../src/agent/proc.ts'
import { processTree } from '../../src/agent/process-groups.ts'
import type { AgentProcess } from './agent-process.ts'
import type { World } from './world.ts'

/** Where the clients of the wires find their key. */
export const keyNames = ['ANTHROPIC_API_KEY', 'OPENAI_API_KEY']

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

/** Requests of whoever has not the credential, and those that have it but come by another name or from another process. */
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
    'another process, with the key of one wire': { host, headers: [right] },
    'another process, with the key of the other': { host, headers: [`Authorization: Bearer ${credential}`] },
    'another path': { host, target: '/anthropic/v1/complete', headers: [right] },
  }
}

/**
 * Asserts, while a command runs, that no listener of the agent calls the model for a client without its credential, under another host
 * name, or in another process than the program's.
 */
export async function assertStrangersRefused(world: World, agent: AgentProcess, needsProxy: boolean): Promise<void> {
  const ports = listeningPorts(processTree(agent.pid))
  assert.equal(ports.length > 0, needsProxy)
  const expected = needsProxy ? 1 : 0
  const credentialsOf = () => keyNames.flatMap((key) => environmentValues(processTree(agent.pid), key))
  // A process that has just begun its program has no environment for a moment.
  const credentials = new Set<string>()
  do {
    for (const found of credentialsOf()) credentials.add(found)
  } while (credentials.size < expected && (await sleep(20, true)))
  assert.equal(credentials.size, expected)
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
  assert.equal(world.asked, asked, 'the gateway was called')
  if (!needsProxy) return
  assert.ok(Buffer.from(credential, 'base64url').length >= 32)
  assert.deepEqual(filesWith(world.folder, credential), [], 'the credential is on the disk')
}

/**
 * A command that asks the model with what it has inherited, as the client of Anthropic's wire does. The file gets the status and the
 * body of the answer.
 */
export function commandThatAsks(folder: string, answer: string): string {
  const script = join(folder, 'ask.py')
  writeFileSync(script, askScript)
  return `python3 ${script} ${answer}`
}

const [anthropicPath, anthropicBody] = wires[0]!
const askScript = `
import os, sys, urllib.error, urllib.request
headers = {'content-type': 'application/json', 'x-api-key': os.environ['ANTHROPIC_API_KEY']}
url = os.environ['ANTHROPIC_BASE_URL'] + '${anthropicPath.slice('/anthropic'.length)}'
request = urllib.request.Request(url, b'${JSON.stringify(anthropicBody)}', headers)
try: answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error: answer = error
open(sys.argv[1], 'w').write(f'{answer.status} {answer.read().decode()}')
`

/** The TCP ports on which any of the processes listens (proc(5), proc_pid_net(5)). */
function listeningPorts(pids: readonly number[]): number[] {
  const held = new Set(pids.flatMap((pid) => linksIn(`/proc/${pid}/fd`)))
  const lines = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((path) => textOf(path).split('\n'))
  const ports = new Set<number>()
  for (const line of lines) {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/)
    if (state === '0A' && held.has(`socket:[${inode}]`)) ports.add(Number.parseInt(local.split(':')[1] ?? '', 16))
  }
  return [...ports]
}

/** What the processes have for a name in the environment with which they were started. */
function environmentValues(pids: readonly number[], name: string): string[] {
  const entries = pids.flatMap((pid) => textOf(`/proc/${pid}/environ`).split('\0'))
  const values = entries.filter((entry) => entry.startsWith(`${name}=`)).map((entry) => entry.slice(name.length + 1))
  return [...new Set(values)]
}

/** The files below a folder that hold a text. */
export function filesWith(folder: string, text: string): string[] {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  return files.map((entry) => join(entry.parentPath, entry.name)).filter((path) => textOf(path).includes(text))
}

/** Sends bytes to a port of the loopback and returns all that comes back; nothing when the connection is cut. */
async function sendRaw(port: number, head: readonly string[], body = ''): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>()
  let received = ''
  const socket = connect({ host: '127.0.0.1', port })
  socket.on('data', (chunk: Buffer) => (received += chunk.toString()))
  socket.on('error', () => {})
  socket.once('close', () => resolve(received))
  socket.write(`${head.join('\r\n')}\r\n\r\n${body}`)
  return await promise
}
