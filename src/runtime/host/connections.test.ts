import assert from 'node:assert/strict'
import { EventEmitter, once } from 'node:events'
import { createServer, connect as connectSocket, type AddressInfo, type Socket } from 'node:net'
import { after, before, test } from 'node:test'
import { setImmediate as later } from 'node:timers/promises'
import { freezeGraceMs } from '../../sandbox/ports/runtime-driver.ts'
import { Connections, type OpenOptions } from './connections.ts'

const listener = createServer((socket) => socket.resume())

before(() => once(listener.listen(0, '127.0.0.1'), 'listening'))
after(() => void listener.close())

const connections = new Connections()

async function connect(): Promise<Socket> {
  const socket = connectSocket((listener.address() as AddressInfo).port, '127.0.0.1')
  await once(socket, 'connect')
  return socket
}

test('freeze: emits on open connections, and returns when all are closed', async () => {
  const socket = await connections.open('sb-1', connect)
  const reported = once(socket, 'freeze')
  const freezing = connections.freeze('sb-1', 'checkpoint')
  assert.deepEqual(await reported, ['checkpoint'])
  let isFrozen = false
  void freezing.then(() => (isFrozen = true))
  await later()
  assert.equal(isFrozen, false)
  socket.destroy()
  const thaw = await freezing
  thaw()
})

test('freeze: an owner that does not listen yet is told when it does', async () => {
  const socket = await connections.open('sb-1', connect)
  const freezing = connections.freeze('sb-1', 'checkpoint')
  await later()
  assert.deepEqual(await once(socket, 'freeze'), ['checkpoint'])
  socket.destroy()
  const thaw = await freezing
  thaw()
})

test('end: the end of a machine closes what a client would hold half open, and what it does not read', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const open = async () => {
    const accepted = once(listener, 'connection') as Promise<[Socket]>
    const socket = await connections.open('sb-1', connect, { kind: 'port' })
    socket.allowHalfOpen = true
    return { socket, closed: once(socket, 'close'), inside: (await accepted)[0] }
  }
  const [ended, ending, silent] = [await open(), await open(), await open()]
  const readsEnd = once(ended.socket.resume(), 'end')
  ended.inside.end()
  await readsEnd
  connections.endAll('sb-1')
  await ended.closed
  ending.socket.resume()
  ending.inside.end('last words')
  await ending.closed
  assert.ok(ending.socket.bytesRead > 0 && !silent.socket.destroyed)
  t.mock.timers.tick(freezeGraceMs)
  await silent.closed
})

test('dial: during a checkpoint it waits for the end, and the next freeze knows the connection', async () => {
  const thaw = await connections.freeze('sb-1', 'checkpoint')
  const dial = connections.open('sb-1', connect)
  await later()
  thaw()
  const socket = await dial
  const reported = once(socket, 'freeze')
  const freezing = connections.freeze('sb-1', 'checkpoint')
  await reported
  socket.destroy()
  const thawAgain = await freezing
  thawAgain()
})

test('dial: during a hibernation it fails, for this sandbox alone', async () => {
  const thaw = await connections.freeze('sb-1', 'hibernate')
  await assert.rejects(connections.open('sb-1', connect), { code: 'unavailable' })
  const other = await connections.open('sb-2', connect)
  other.destroy()
  await once(other, 'close')
  thaw()
})

/** Stands for a socket: no thousand are opened. */
const stand = async () => new EventEmitter() as unknown as Socket

async function openMany(count: number, ids: (index: number) => string, options: OpenOptions = {}): Promise<Socket[]> {
  const open: Socket[] = []
  for (let index = 0; index < count; index += 1) open.push(await connections.open(ids(index), stand, options))
  return open
}

function closeAll(sockets: readonly Socket[]): void {
  for (const socket of sockets) socket.emit('close')
}

test('open: a sandbox has a bounded number of connections, and leaves those of others alone', async () => {
  const open = await openMany(1024, () => 'sb-full')
  await assert.rejects(connections.open('sb-full', stand), { code: 'unavailable' })
  const other = await connections.open('sb-2', connect)
  other.destroy()
  await once(other, 'close')
  open[0]?.emit('close')
  const again = await connections.open('sb-full', stand)
  closeAll([...open.slice(1), again])
})

test('open: who takes all connections to ports of a sandbox leaves its guest to its owner', async () => {
  const open = await openMany(768, () => 'sb-full', { kind: 'port' })
  await assert.rejects(connections.open('sb-full', stand, { kind: 'port' }), { code: 'unavailable', message: /ports/ })
  const toGuest = await connections.open('sb-full', stand)
  closeAll(open.splice(0, 1))
  closeAll([...open, toGuest, await connections.open('sb-full', stand, { kind: 'port' })])
})

test('open: a guest is probed however many connections its sandbox has', async () => {
  const open = await openMany(1024, () => 'sb-full')
  const probe = await connections.open('sb-full', stand, { kind: 'probe' })
  closeAll([...open, probe])
})

test('open: an owner that takes all connections that it may have leaves others theirs', async () => {
  const open = await openMany(8_192, (index) => `sb-${index % 64}`, { owner: 'org_slow' })
  const more = connections.open('sb-another', stand, { owner: 'org_slow' })
  await assert.rejects(more, { code: 'unavailable', message: /organisation/ })
  const others = await openMany(1024, () => 'sb-other', { owner: 'org_other' })
  closeAll(open.splice(0, 1))
  closeAll([...open, ...others, await connections.open('sb-another', stand, { owner: 'org_slow' })])
})

test('open: what all owners hold together leaves room for probes, and what ended or failed is free again', async () => {
  const options = (index: number) => ({ owner: `org_${index % 4}` })
  const open: Socket[] = []
  for (let index = 0; index < 15_360; index += 1)
    open.push(await connections.open(`sb-${index % 64}`, stand, options(index)))
  await assert.rejects(connections.open('sb-another', stand, { owner: 'org_other' }), { code: 'unavailable' })
  const probe = await connections.open('sb-another', stand, { kind: 'probe' })
  closeAll([...open, probe])
  const fails = () => Promise.reject(new Error('no socket'))
  for (let index = 0; index <= 8_192; index += 1)
    await assert.rejects(connections.open('sb-failing', fails, { owner: 'org_other' }), /no socket/)
  closeAll([await connections.open('sb-another', stand, { owner: 'org_other' })])
})
