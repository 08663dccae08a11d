/** Peers of one organisation that are slow on purpose, and what another organisation sees meanwhile. */
import assert from 'node:assert/strict'
import { EventEmitter, once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { setImmediate as immediate } from 'node:timers/promises'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { hostOf, usePreview } from '../support/preview-world.ts'
import { useWorld } from '../support/world.ts'

const held: ServerResponse[] = []
const preview = usePreview({ '/hold': (_request, response) => void held.push(response) })

/** Sends a request to the preview and takes nothing of its answer. */
async function send(path: string) {
  const socket = connect(preview.world.port, '127.0.0.1').on('error', () => undefined)
  socket.write(`GET ${path} HTTP/1.1\r\nHost: ${preview.host}\r\n\r\n`)
  await once(socket, 'connect')
  return socket
}

test('preview: a client that leaves while it waits for a connection costs the sandbox none', async () => {
  await preview.watchingDials(async (dialled) => {
    const crowd = await Promise.all(Array.from({ length: 256 }, () => send('/hold')))
    await eventually(() => held.length >= crowd.length)
    const waiting = await Promise.all(Array.from({ length: 40 }, () => send('/hold')))
    for (const socket of waiting) socket.resetAndDestroy()
    // What the server hears behind them it hears later.
    assert.equal((await preview.world.api.get('/api/sandboxes')).status, 200)
    for (const response of held.splice(0)) response.end('come in')
    for (const socket of crowd) socket.destroy()
    assert.equal((await preview.ask('/')).status, 200)
    assert.ok(dialled.length <= crowd.length + 1, `${dialled.length} connections`)
    assert.equal(held.length, 0)
  })
})

test('preview: a request beyond those that may wait for a port is refused, and other sandboxes are served', async () => {
  const { body: other } = await preview.world.stranger.post('/api/sandboxes', {})
  const mayStay = 256 + 1024
  const crowd: Socket[] = []
  const refusals = new EventEmitter()
  const refused = once(refusals, 'refused').then(() => true)
  const isRefused = () => Promise.race([refused, immediate(false)])
  while (!(await isRefused())) {
    const socket = await send('/hold')
    socket.on('data', (data) => void (data.includes('HTTP/1.1 503 ') && refusals.emit('refused')))
    crowd.push(socket)
    // The server has heard all of them by then: more than the kernel queues for it would be lost.
    if (crowd.length % 100 === 0 || crowd.length > mayStay) await preview.world.api.get('/api/sandboxes')
    assert.ok(crowd.length <= 2 * mayStay)
  }
  assert.ok(crowd.length > mayStay)
  const otherHost = hostOf((other as { sandboxID: string }).sandboxID, preview.port)
  assert.equal((await preview.ask('/', {}, otherHost)).status, 200)
  for (const socket of crowd) socket.destroy()
  for (const response of held.splice(0)) response.end()
})

/** An upload that is answered before its end is refused. */
const isOpen = ({ bytesRead }: Socket) => bytesRead === 0
const world = useWorld({ limits: { fileTransfersPerOrganisationMax: 3 } })

/** Sends the head of an upload of a megabyte, with a key or to a signed URL, and one byte of it. */
async function beginUpload(path: string, key?: string) {
  const socket = connect(world.port, '127.0.0.1').on('error', () => undefined)
  const head = `PUT ${path} HTTP/1.1\r\nHost: a\r\n${key === undefined ? '' : `X-API-Key: ${key}\r\n`}`
  socket.write(`${head}Content-Length: 1000000\r\n\r\nx`)
  await once(socket, 'connect')
  return socket
}

test('file: slow transfers of one organisation, signed ones too, leave others theirs, and give their places back', async () => {
  const { api, stranger } = world
  const id = await world.sandbox()
  const { body: other } = await stranger.post('/api/sandboxes', {})
  const folder = world.machines.folder(id)
  const file = (name: string) => `/api/sandboxes/${id}/files?path=${encodeURIComponent(`${folder}/${name}`)}`
  const { body: signed } = await api.post(`/api/sandboxes/${id}/files/upload-url`, { path: `${folder}/signed` })
  const address = new URL((signed as { url: string }).url)
  const begin = [
    () => beginUpload(`${address.pathname}${address.search}`),
    () => beginUpload(file('slow-1'), api.key),
    () => beginUpload(file('slow-2'), api.key),
  ]
  const slow = await Promise.all(begin.map((upload) => upload()))
  // A quick one may have the place of a slow one, which is refused then.
  await eventually(async () => {
    for (const [at, socket] of slow.entries()) if (!isOpen(socket)) slow[at] = await begin[at]!()
    const write = await api.put(file('quick'), Buffer.from('a'))
    const read = await api.get(file('quick'))
    return [write, read].every(({ status, body }) => status === 429 && body.code === 'rate_limited')
  })
  const { sandboxID } = other as { sandboxID: string }
  const path = encodeURIComponent(`${world.machines.folder(sandboxID)}/quick`)
  assert.equal((await stranger.put(`/api/sandboxes/${sandboxID}/files?path=${path}`, Buffer.from('a'))).status, 204)
  slow[0]?.destroy()
  await eventually(async () => (await api.put(file('quick'), Buffer.from('a'))).status !== 429)
  for (const socket of slow) socket.destroy()
})
