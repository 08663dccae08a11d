/** Started by `greed.ts`. */
import { once, setMaxListeners } from 'node:events'
import { Agent, request } from 'node:http'
import { setPriority } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Answers, Axis, GreedyOrder } from './greed.ts'

setPriority(19)
const [order] = (await once(process, 'message')) as [GreedyOrder]
const agent = new Agent({ keepAlive: true, maxSockets: 512 })
const answers: Answers = {}
const ending = new AbortController()
setMaxListeners(0, ending.signal)
const sandboxIds: string[] = []
const images = new Set<string>()
const sandboxesOfOne = 4
const streamsOpened = 150
let numbers = 0

/** Each keeps one caller busy for one call, or a little longer. */
const works: Record<Axis, { callers: number; work: (caller: number, begun: () => void) => Promise<number> }> = {
  requests: { callers: 32, work: (caller) => call('GET', `/api/sandboxes/${sandboxOf(caller)}`) },
  creates: { callers: 8, work: createAndDelete },
  exec: { callers: 32, work: (caller) => run(caller, 'true') },
  cpu: { callers: 8, work: (caller) => run(caller, 'i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done') },
  disk: {
    callers: 8,
    work: (caller) => run(caller, `dd if=/dev/zero of=/root/f${caller} bs=64k count=64 oflag=dsync; sync`),
  },
  network: { callers: 4, work: (caller) => run(caller, flood) },
  streams: { callers: streamsOpened, work: follow },
  builds: { callers: 4, work: build },
  log: {
    callers: 32,
    work: (caller) => call('PUT', `/api/sandboxes/${sandboxOf(caller)}/tags`, { n: `${numbers++}` }),
  },
}
/** A second of packets to an address that answers nothing. */
const flood = `node -e "
const s = require('dgram').createSocket('udp4'), b = Buffer.alloc(1400), end = Date.now() + 1000
const next = () => Date.now() < end ? s.send(b, 9, '11.0.0.1', next) : s.close()
for (let i = 0; i < 64; i++) next()"`

while (sandboxIds.length < sandboxesOfOne) {
  const { status, body } = await ask('POST', '/api/sandboxes', { timeout: 0 })
  if (status < 300) sandboxIds.push((JSON.parse(body) as { sandboxID: string }).sandboxID)
}
const first: Promise<void>[] = []
const callers = order.axes.flatMap((axis) => {
  answers[axis] = { served: 0, refused: 0, failed: 0 }
  const { promise, resolve } = Promise.withResolvers<void>()
  first.push(promise)
  return Array.from({ length: works[axis].callers }, (_, caller) => insist(axis, caller, resolve))
})
await Promise.all(first)
process.send?.('begun')
await once(process, 'message')
ending.abort()
await Promise.all(callers)
await remove()
process.send?.(answers)
await once(process, 'disconnect')
agent.destroy()

/** Calls again and again, also when it was refused. */
async function insist(axis: Axis, caller: number, begun: () => void): Promise<void> {
  const counts = answers[axis] ?? { served: 0, refused: 0, failed: 0 }
  while (!ending.signal.aborted) {
    const status = await works[axis].work(caller, begun)
    if (status === 429) counts.refused += 1
    else if (status >= 500 || status === 0) counts.failed += 1
    else counts.served += 1
    begun()
  }
}

async function createAndDelete(): Promise<number> {
  const { status, body } = await ask('POST', '/api/sandboxes', { timeout: 0 })
  if (status >= 300) return status
  const { sandboxID } = JSON.parse(body) as { sandboxID: string }
  while ((await call('DELETE', `/api/sandboxes/${sandboxID}`)) === 429) await sleep(10)
  return status
}

async function build(): Promise<number> {
  const name = `greedy-${numbers++}`
  images.add(name)
  const steps = [{ type: 'run', args: { commands: [`echo ${name}; head -c 20000000 /dev/urandom > /root/file`] } }]
  return await call('POST', '/api/snapshots', { name, image: { steps } })
}

/** Follows the log until the end. */
async function follow(_caller: number, begun: () => void): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>()
  // One that waits for its answer ends too.
  const options = { headers: { 'X-API-Key': order.key }, agent: false, signal: ending.signal }
  request(`${order.url}/api/events?follow=true`, options, (response) => {
    const { statusCode = 0 } = response
    if (statusCode === 200) begun()
    response.once('error', () => undefined)
    response.resume().once('close', () => resolve(statusCode))
  })
    .once('error', () => resolve(ending.signal.aborted ? 200 : 0))
    .end()
  return await promise
}

function sandboxOf(caller: number): string {
  return sandboxIds[caller % sandboxIds.length] ?? ''
}

async function run(caller: number, script: string): Promise<number> {
  return await call('POST', `/api/sandboxes/${sandboxOf(caller)}/exec/run`, { cmd: 'sh', args: ['-c', script] })
}

async function call(method: string, path: string, body?: object): Promise<number> {
  return (await ask(method, path, body)).status
}

async function ask(method: string, path: string, body?: object): Promise<{ status: number; body: string }> {
  const { promise, resolve } = Promise.withResolvers<{ status: number; body: string }>()
  const headers = { 'X-API-Key': order.key, 'Content-Type': 'application/json' }
  request(order.url + path, { method, headers, agent }, (response) => {
    let text = ''
    response.on('data', (chunk: Buffer) => (text += chunk.toString()))
    response.once('close', () => resolve({ status: response.statusCode ?? 0, body: text }))
  })
    .once('error', () => resolve({ status: 0, body: '' }))
    .end(body === undefined ? undefined : JSON.stringify(body))
  return await promise
}

async function remove(): Promise<void> {
  const paths = [
    ...sandboxIds.map((id) => `/api/sandboxes/${id}`),
    ...[...images].map((name) => `/api/snapshots/${name}`),
  ]
  for (const path of paths) while ((await call('DELETE', path)) === 429) await sleep(20)
}
