import assert from 'node:assert/strict'
import { EventEmitter, once } from 'node:events'
import { createServer, connect as connectSocket, type AddressInfo, type Socket } from 'node:net'
import { after, before, test } from 'node:test'
import { setImmediate as later } from 'node:timers/promises'
import { Connections } from './connections.ts'

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
  thaw()
})

test('open: a sandbox has a bounded number of connections, and leaves those of others alone', async () => {
  // Stands for a socket: no thousand are opened.
  const stand = async () => new EventEmitter() as unknown as Socket
  const open: Socket[] = []
  for (let index = 0; index < 1024; index += 1) open.push(await connections.open('sb-full', stand))
  await assert.rejects(connections.open('sb-full', stand), { code: 'unavailable' })
  const other = await connections.open('sb-2', connect)
  other.destroy()
  open[0]?.emit('close')
  await connections.open('sb-full', stand)
})
