/** Exec sessions and terminals with clients that read nothing, leave, or are several. */
import assert from 'node:assert/strict'
import type { Socket } from 'node:net'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { useWorld } from '../support/use-world.ts'

let id: string
const world = useWorld({}, async () => {
  id = await world.sandbox({ timeout: 0 })
})

class Client {
  readonly socket: WebSocket
  readonly messages: Buffer[] = []
  readonly closed: Promise<void>
  bytes = 0

  constructor(path: string, query = '') {
    const url = `${world.origin.replace('http', 'ws')}/api/sandboxes/${id}/${path}?api_key=${world.api.key}${query}`
    this.socket = new WebSocket(url)
    this.socket.on('message', (data: Buffer) => {
      this.bytes += data.length
      // Only the last ones: some tests send more than they want to keep.
      this.messages.push(data)
      if (this.messages.length > 100) this.messages.shift()
    })
    this.closed = new Promise((resolve, reject) => {
      this.socket.once('close', () => resolve())
      this.socket.once('error', reject)
    })
  }

  get text(): string {
    return Buffer.concat(this.messages).toString()
  }

  async opened(): Promise<this> {
    while (this.socket.readyState === WebSocket.CONNECTING) await sleep(5)
    return this
  }

  async shows(text: string): Promise<void> {
    while (!this.text.includes(text)) await sleep(10)
  }
}

async function start(body: object): Promise<string> {
  const answer = await world.api.post(`/api/sandboxes/${id}/exec`, body)
  assert.equal(answer.status, 201, answer.text)
  return answer.body.sessionID as string
}

test('exec client: a client that reads nothing costs a bounded buffer, and holds up neither the process nor other clients', async () => {
  const { machines } = world
  const dialled: Socket[] = []
  const { dial } = machines
  machines.dial = async (sandboxId) => {
    const connection = await dial.call(machines, sandboxId)
    dialled.push(connection as Socket)
    return connection
  }
  try {
    const total = 300 * 1024 * 1024
    const execId = await start({ cmd: 'sh', args: ['-c', `read go; head -c ${total} /dev/zero; echo done >&2`] })
    const first = dialled.length
    const deaf = await new Client(`exec/${execId}`).opened()
    const deafConnections = dialled.slice(first)
    assert.ok(deafConnections.length > 0)
    deaf.socket.pause()
    const reader = await new Client(`exec/${execId}`).opened()
    reader.socket.send(Buffer.from('\0go\n'))
    await reader.closed
    assert.deepEqual([reader.messages.at(-1)?.[0], reader.messages.at(-1)?.readInt32BE(1)], [3, 0])
    const taken = deafConnections.reduce((sum, connection) => sum + connection.bytesRead, 0)
    assert.ok(taken < total / 10, `${taken} bytes were taken from the sandbox for it`)
    deaf.socket.resume()
    await deaf.closed
    assert.equal(deaf.messages.at(-1)?.[0], 3, 'it gets what is kept, and the end')
    assert.ok(deaf.bytes < total / 10)
    const output = await world.api.get(`/api/sandboxes/${id}/exec/${execId}/result`)
    assert.deepEqual([output.body.stdout.length, output.body.stderr], [1024 * 1024, 'done\n'])
  } finally {
    machines.dial = dial
  }
})

test('exec client: maxRunAfterDisconnect ends a process that nobody is attached to, and not before the last one leaves', async () => {
  const execId = await start({ cmd: 'sh', args: ['-c', 'echo up; sleep 1000'], maxRunAfterDisconnect: 1 })
  const one = await new Client(`exec/${execId}`).opened()
  const two = await new Client(`exec/${execId}`).opened()
  const state = async () => (await world.api.get(`/api/sandboxes/${id}/exec/${execId}/result?wait=0`)).body
  one.socket.close()
  await one.closed
  await sleep(1500)
  assert.equal((await state()).running, true)
  two.socket.close()
  await two.closed
  while ((await state()).running) await sleep(50)
  assert.equal((await state()).exitCode, 137)
  for (const maxRunAfterDisconnect of [-1, 1.5, 'x']) {
    const answer = await world.api.post(`/api/sandboxes/${id}/exec`, { cmd: 'true', maxRunAfterDisconnect })
    assert.deepEqual([answer.status, answer.body.code], [400, 'invalid_request'])
  }
})

test('a terminal has several clients: each may type, all see it, and one that left comes back by offset', async () => {
  const pty = (await world.api.post(`/api/sandboxes/${id}/pty`, { shell: '/bin/sh' })).body.sessionID as string
  const one = await new Client(`pty/${pty}`).opened()
  const two = await new Client(`pty/${pty}`).opened()
  one.socket.send('echo fir$((1))st\n')
  await Promise.all([one.shows('fir1st'), two.shows('fir1st')])
  two.socket.send('echo sec$((2))ond\n')
  await Promise.all([one.shows('sec2ond'), two.shows('sec2ond')])
  await sleep(100)
  const { bytes } = one
  one.socket.close()
  await one.closed
  two.socket.send('echo th$((3))ird\n')
  await two.shows('th3ird')
  const again = await new Client(`pty/${pty}`, `&offset=${bytes}`).opened()
  await again.shows('th3ird')
  assert.ok(!again.text.includes('sec2ond'))
  const attachedClients = async () => {
    const terminals = await world.sandboxes.exec.list(world.orgId, id, 'pty')
    return terminals.find((terminal) => terminal.id === pty)?.attachedClients
  }
  // The guest notices by itself that a client has left.
  while ((await attachedClients()) === 3) await sleep(10)
  assert.equal(await attachedClients(), 2)
  const listed = (await world.api.get(`/api/sandboxes/${id}/exec`)).body as { sessionID: string }[]
  assert.ok(!listed.some(({ sessionID }) => sessionID === pty), 'a terminal is no exec session')
  assert.equal((await world.api.post(`/api/sandboxes/${id}/exec/${pty}/kill`, {})).status, 404)
  await world.api.delete(`/api/sandboxes/${id}/pty/${pty}`)
  await Promise.all([two.closed, again.closed])
})
