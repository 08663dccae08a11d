import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { useWorld } from '../support/world.ts'

let id: string
const world = useWorld({}, async () => {
  id = await world.sandbox({ timeout: 0 })
})

const path = (suffix: string) => `/api/sandboxes/${id}${suffix}`

const server = `
import socket, time
server = socket.create_server(('127.0.0.1', 0))
print(server.getsockname()[1], flush=True)
time.sleep(1000)
`

test('ports: a server in the sandbox is listed with the address of its preview', async () => {
  const { api } = world
  const started = await api.post(path('/exec/run-async'), { cmd: 'python3', args: ['-c', server] })
  const result = path(`/exec/${started.body.execId as string}/result`)
  let port = 0
  while (port === 0) {
    port = Number((await api.get(result)).body.stdout)
    await sleep(20)
  }
  const { status, body } = await api.get(path('/ports'))
  assert.equal(status, 200)
  const found = (body as { port: number; url: string; address: string; command: string }[]).find(
    (it) => it.port === port,
  )
  assert.equal(found?.address, '127.0.0.1')
  assert.match(found?.url ?? '', new RegExp(`^https?://${id}-p${port}\\.`))
  assert.match(found?.command ?? '', /^python3 -c/)
})

test('processes: one is listed and takes a signal, once', async () => {
  const { api } = world
  const seconds = `${100_000 + Math.floor(Math.random() * 100_000)}`
  await api.post(path('/exec'), { cmd: 'sleep', args: [seconds] })
  type Process = { pid: number; command: string }
  const find = async () =>
    ((await api.get(path('/processes'))).body as Process[]).find(({ command }) => command === `sleep ${seconds}`)
  let found = await find()
  while (found === undefined) {
    await sleep(20)
    found = await find()
  }
  const process = path(`/processes/${found.pid}`)
  assert.equal((await api.delete(`${process}?signal=0`)).status, 400)
  assert.equal((await api.delete(`${process}?signal=9`)).status, 204)
  await eventually(async () => (await find()) === undefined)
  // It has its number until its parent has read how it ended.
  await eventually(async () => (await api.delete(process)).status === 404)
  assert.equal((await api.delete(path('/processes/x'))).status, 400)
  assert.equal((await api.delete(path('/processes/1'))).status, 403)
})

test('inspection: a stopped sandbox has no processes or ports, and an unknown one is not found', async () => {
  const { api } = world
  const stopped = await world.sandbox({ timeout: 0 })
  await api.delete(`/api/sandboxes/${stopped}`)
  for (const list of ['ports', 'processes']) {
    assert.equal((await api.get(`/api/sandboxes/${stopped}/${list}`)).status, 410)
    assert.equal((await api.get(`/api/sandboxes/sb-0000000000000000/${list}`)).status, 404)
  }
})
