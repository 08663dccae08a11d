import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { setImmediate as nextRound } from 'node:timers/promises'
import { WebSocket, WebSocketServer } from 'ws'
import { eventually } from '../../lib/testing/eventually.ts'
import { BodyBudget } from '../../lib/body-budget.ts'
import type { Log } from '../../lib/log.ts'
import type { Attachment, AttachmentEvent } from '../../sandbox/index.ts'
import { boundMessages, carryExec, carryPty, inputWeightMax, messageOverheadBytes } from './exec-socket.ts'
import { Streams } from './streams.ts'

let server: WebSocketServer

before(async () => {
  server = new WebSocketServer({ host: '127.0.0.1', port: 0 })
  await once(server, 'listening')
})

after(() => {
  for (const client of server.clients) client.terminate()
  server.close()
})

const log: Log = { debug() {}, info() {}, warn() {}, error() {} }
/** One read of a socket, full of the smallest frames that are not dropped: seven bytes each. */
const inHandMax = 65_536 / 7

/** A process that takes no input until `open` is called. */
function deafProcess() {
  const gate = Promise.withResolvers<void>()
  const closed = Promise.withResolvers<void>()
  const taken: Buffer[] = []
  let ends = 0
  const attachment: Attachment = {
    async write(data) {
      await gate.promise
      taken.push(Buffer.from(data))
    },
    async end() {
      await gate.promise
      ends++
    },
    async acknowledge() {},
    close: () => closed.resolve(),
    async [Symbol.asyncDispose]() {},
    [Symbol.asyncIterator]: () => ({
      async next() {
        await closed.promise
        return { done: true, value: undefined }
      },
    }),
  }
  return {
    attachment,
    open: gate.resolve,
    bytes: () => Buffer.concat(taken),
    count: () => taken.length,
    ends: () => ends,
  }
}

async function connected(): Promise<{ client: WebSocket; served: WebSocket }> {
  const { port } = server.address() as AddressInfo
  const accepted = once(server, 'connection')
  const client = new WebSocket(`ws://127.0.0.1:${port}`)
  await once(client, 'open')
  const [served] = (await accepted) as [WebSocket]
  return { client, served }
}

/** Sends all of it and waits until the server reads no more of it. */
async function flood(client: WebSocket, served: WebSocket, count: number, message: (index: number) => Buffer) {
  const heard = { now: 0, earlier: -1 }
  served.on('message', () => heard.now++)
  for (let index = 0; index < count; index++) client.send(message(index))
  do {
    heard.earlier = heard.now
    await new Promise((resolve) => setTimeout(resolve, 100))
  } while (heard.now === 0 || heard.now !== heard.earlier)
  return () => heard.now
}

test('exec socket: two hundred thousand tiny frames for a process that reads nothing hold the socket back, and arrive in order later', async () => {
  const { client, served } = await connected()
  const deaf = deafProcess()
  carryExec(served, deaf.attachment, { streams: new Streams(), log })
  const heard = await flood(client, served, 200_000, (index) => Buffer.of(0, index % 251))
  await eventually(() => served.isPaused)
  const messagesMax = inputWeightMax / messageOverheadBytes
  assert.ok(heard() <= messagesMax + inHandMax, `${heard()} messages were read`)
  assert.equal(deaf.count(), 0)

  deaf.open()
  await eventually(() => deaf.count() >= 200_000)
  assert.equal(served.isPaused, false)
  assert.ok(deaf.bytes().equals(Buffer.from(Array.from({ length: 200_000 }, (_, index) => index % 251))))
  client.terminate()
})

test('exec socket: ignored frames are not queued: empty messages, other streams, input after its end', async () => {
  const { client, served } = await connected()
  const deaf = deafProcess()
  carryExec(served, deaf.attachment, { streams: new Streams(), log })
  client.send(Buffer.from([0, 7]))
  client.send(Buffer.of(0))
  const nothings = [Buffer.alloc(0), Buffer.from([9, 1]), Buffer.of(0), Buffer.from([0, 8])]
  const heard = await flood(client, served, 50_000, (index) => nothings[index % nothings.length] ?? Buffer.alloc(0))
  await eventually(() => heard() === 50_002)
  assert.equal(served.isPaused, false)
  deaf.open()
  await eventually(() => deaf.ends() !== 0)
  assert.deepEqual([deaf.bytes(), deaf.ends()], [Buffer.of(7), 1])
  client.terminate()
})

test('exec socket: a terminal drops empty messages and holds back a flood of small ones', async () => {
  const { client, served } = await connected()
  const deaf = deafProcess()
  carryPty(served, deaf.attachment, { streams: new Streams(), log })
  const empty = await flood(client, served, 20_000, () => Buffer.alloc(0))
  await eventually(() => empty() === 20_000)
  assert.equal(served.isPaused, false)
  await flood(client, served, 20_000, () => Buffer.of(1))
  await eventually(() => served.isPaused)
  client.terminate()
})

test('exec socket: a terminal whose shell has ended closes with its exit status as the reason', async () => {
  const { client, served } = await connected()
  const { attachment } = deafProcess()
  const events: AttachmentEvent[] = [
    { type: 'output', stream: 'stdout', offset: 0, data: Buffer.from('bye'), headed: Buffer.from('\0bye') },
    { type: 'exit', exitCode: 3 },
  ]
  carryPty(
    served,
    {
      ...attachment,
      async *[Symbol.asyncIterator]() {
        yield* events
      },
    },
    { streams: new Streams(), log },
  )
  const [code, reason] = (await once(client, 'close')) as [number, Buffer]
  assert.deepEqual([code, reason.toString()], [1000, 'exit 3'])
})

/** A connection whose messages are bounded. */
async function bounded(budget: BodyBudget, owner: string) {
  const upgraded = once(server, 'connection') as Promise<[WebSocket, IncomingMessage]>
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`)
  client.on('error', () => undefined)
  await once(client, 'open')
  const [served, { socket }] = await upgraded
  boundMessages(socket, served, budget, owner)
  return { client, served }
}

test('exec socket: unfinished messages of one organisation leave others room, and give theirs back', async () => {
  const budget = new BodyBudget(3_000_000, { ownerBytesMax: 1_000_000, freeBytes: 1000 })
  const part = Buffer.alloc(600_000)
  const has = (bytes: number) => {
    using share = budget.open('org_slow')
    return share.take(bytes + 1000)
  }
  const slow = await bounded(budget, 'org_slow')
  slow.client.send(part, { fin: false })
  while (has(410_000)) await nextRound()
  // A ping inside a message does not end it.
  slow.served.ping()
  await once(slow.served, 'pong')
  assert.equal(has(410_000), false)
  const more = await bounded(budget, 'org_slow')
  more.client.send(part, { fin: false })
  await once(more.client, 'close')
  const other = await bounded(budget, 'org_other')
  const heard = once(other.served, 'message')
  other.client.send(part)
  assert.equal(((await heard) as [Buffer])[0].length, part.length)
  const whole = once(slow.served, 'message')
  slow.client.send(part.subarray(0, 100_000), { fin: true })
  assert.equal(((await whole) as [Buffer])[0].length, 700_000)
  assert.equal(has(1_000_000), true)
  for (const { client } of [slow, other]) client.terminate()
})

test('exec socket: output stays in the sandbox while the message before it waits for its client', async () => {
  const { client, served } = await connected()
  client.pause()
  const { attachment } = deafProcess()
  const data = Buffer.alloc(64 * 1024 + 1)
  let taken = 0
  const flooding = {
    ...attachment,
    async *[Symbol.asyncIterator]() {
      for (;;) {
        taken += 1
        yield { type: 'output', stream: 'stdout', offset: 0, data: data.subarray(1), headed: data } as const
      }
    },
  }
  carryExec(served, flooding, { streams: new Streams(), log })
  let earlier = -1
  while (earlier !== taken) {
    earlier = taken
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  assert.ok(served.bufferedAmount > 0 && served.bufferedAmount <= data.length + 16, `${served.bufferedAmount} bytes`)
  client.terminate()
})
