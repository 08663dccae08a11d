/** What real sandboxes refuse, and deletions in the middle of operations. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ApiAnswer, ApiClient } from '../support/api-client.ts'
import { heldAtRest, holdsAgain } from './sandbox-insides.ts'
import { type Checkpoint, settledCheckpoint, sh, startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const server = await AtollServer.startForFile()
const api = new ApiClient(server.url, server.key)

const create = (body?: object) => startSandbox(server, body)
const checkpoint = (id: string, name: string) => settledCheckpoint(server, id, name)

const run = (id: string, script: string) => sh(server, id, script)

const remove = (id: string) => api.delete(`/api/sandboxes/${id}`)

test('checkpoint: where memory cannot be saved the checkpoint has failed with the reason, nothing starts from it, the sandbox runs on', async () => {
  const id = await create()
  // io_uring cannot be saved either, so that there is none here: programs fall back.
  const uring = 'import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall(425, 8, 0); print(ctypes.get_errno())'
  assert.equal(await run(id, `python3 -c '${uring}'`), '38')
  const socket = 'import socket; s = socket.socket(2, 1, 262); s.bind(("127.0.0.1", 80)); s.listen(); input()'
  const { body: session } = await api.post(`/api/sandboxes/${id}/exec`, { cmd: 'python3', args: ['-c', socket] })
  while (!(await run(id, 'cat /proc/net/tcp')).includes(':0050'));
  const failed = await checkpoint(id, 'one')
  assert.deepEqual([failed.status, /multipath TCP/.test(failed.error ?? '')], ['failed', true])
  for (const body of [{}, { count: 2 }]) {
    const start = await api.post(`/api/sandboxes/from-checkpoint/${failed.id}`, body)
    assert.deepEqual([start.status, start.body.code], [409, 'conflict'])
    assert.match(start.body.error, /multipath TCP/)
  }
  const restore = await api.post(`/api/sandboxes/${id}/checkpoints/${failed.id}/restore`, {})
  assert.equal(restore.status, 409)
  const hibernation = await api.post(`/api/sandboxes/${id}/hibernate`, {})
  assert.deepEqual([hibernation.status, /multipath TCP/.test(hibernation.body.error)], [409, true])
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.status, 'running')
  const listed = (await api.get(`/api/sandboxes/${id}/exec`)).body as { sessionID: string; running: boolean }[]
  assert.equal(listed.find(({ sessionID }) => sessionID === session.sessionID)?.running, true)

  assert.equal((await api.post(`/api/sandboxes/${id}/exec/${session.sessionID}/kill`, {})).status, 204)
  while ((await run(id, 'cat /proc/net/tcp')).includes(':0050'));
  assert.equal((await checkpoint(id, 'two')).status, 'ready')
  const taken = await api.post(`/api/sandboxes/${id}/checkpoints`, { name: 'two' })
  assert.deepEqual([taken.status, taken.body.code], [409, 'conflict'])
  await remove(id)
  const stopped = await api.post(`/api/sandboxes/${id}/checkpoints`, { name: 'three' })
  assert.deepEqual([stopped.status, stopped.body.code], [410, 'sandbox_stopped'])
})

test('memory: more than memoryMB is not started, and a hibernated sandbox with more is not lost', async () => {
  const id = await create()
  const hold = 'import os; held = os.urandom(150 << 20); print("held", flush=True); input()'
  const { body: holder } = await api.post(`/api/sandboxes/${id}/exec`, { cmd: 'python3', args: ['-c', hold] })
  const result = `/api/sandboxes/${id}/exec/${holder.sessionID}/result`
  while (!(await api.get(result)).body.stdout.includes('held'));
  const { id: cp } = await checkpoint(id, 'large')
  const tooSmall = /does not fit into memoryMB/
  const fork = await api.post(`/api/sandboxes/from-checkpoint/${cp}`, { memoryMB: 96 })
  assert.deepEqual([fork.status, fork.body.code, tooSmall.test(fork.body.error)], [409, 'conflict', true])
  const running = await api.post(`/api/sandboxes/${id}/scale`, { memoryMB: 96 })
  assert.deepEqual([running.status, running.body.code], [409, 'oom_floor'])
  await api.post(`/api/sandboxes/${id}/hibernate`, {})
  const woken = await api.post(`/api/sandboxes/${id}/scale`, { memoryMB: 96 })
  assert.deepEqual([woken.status, woken.body.code], [409, 'oom_floor'])
  assert.equal((await api.get(`/api/sandboxes/${id}`)).body.memoryMB, 1024)
  await api.post(`/api/sandboxes/${id}/hibernate`, {})
  assert.equal((await api.post(`/api/sandboxes/${id}/scale`, { memoryMB: 512 })).status, 200)
  assert.equal((await api.get(result)).body.running, true)
  await remove(id)
})

test('patch: one that fails leaves nothing of its sandbox', async () => {
  const id = await create()
  const { id: cp } = await checkpoint(id, 'base')
  const held = await heldAtRest(server.dataDir)
  await server.json('POST', `/api/sandboxes/checkpoints/${cp}/patches`, { script: 'sleep 1000 & echo no >&2; exit 3' })
  const start = await api.post(`/api/sandboxes/from-checkpoint/${cp}`, {})
  assert.deepEqual(
    [start.status, start.body.code, start.body.exitCode, start.body.stderr],
    [422, 'patch_failed', 3, 'no\n'],
  )
  await holdsAgain(server.dataDir, held)
  assert.equal((await api.get('/api/sandboxes')).body.length, 1)
  await remove(id)
})

test('checkpoint: one that is deleted while it starts sandboxes: each runs or was not found, and none is left behind', async () => {
  const id = await create()
  const held = await heldAtRest(server.dataDir)
  const { id: cp } = await checkpoint(id, 'base')
  const starting = api.post(`/api/sandboxes/from-checkpoint/${cp}`, { count: 12 })
  // Beside the source one runs: others are on their way, and the last have not begun.
  while (((await api.get('/api/sandboxes?status=running')).body as unknown[]).length < 2) await sleep(20)
  assert.equal((await api.delete(`/api/sandboxes/${id}/checkpoints/${cp}`)).status, 204)
  const { status, body } = await starting
  const results = body.sandboxes as { sandboxID?: string; code?: string }[]
  assert.deepEqual([status, results.length], [201, 12])
  for (const result of results) {
    if (result.sandboxID === undefined) assert.equal(result.code, 'not_found', JSON.stringify(result))
    else assert.equal(await run(result.sandboxID, 'hostname'), result.sandboxID)
  }
  await Promise.all(results.flatMap(({ sandboxID }) => (sandboxID === undefined ? [] : [remove(sandboxID)])))
  await holdsAgain(server.dataDir, held)
  await remove(id)
})

test('delete: in the middle of any operation it leaves nothing, and no answer is an internal error', async () => {
  const source = await create()
  const { id: cp } = await checkpoint(source, 'base')
  const held = await heldAtRest(server.dataDir)
  const steps: Record<string, (id: string) => Promise<ApiAnswer>> = {
    checkpoint: (id) => api.post(`/api/sandboxes/${id}/checkpoints`, { name: 'x' }),
    hibernate: (id) => api.post(`/api/sandboxes/${id}/hibernate`, {}),
    reboot: (id) => api.post(`/api/sandboxes/${id}/reboot`, {}),
    'power-cycle': (id) => api.post(`/api/sandboxes/${id}/power-cycle`, {}),
    scale: (id) => api.post(`/api/sandboxes/${id}/scale`, { memoryMB: 2048 }),
    exec: (id) => api.post(`/api/sandboxes/${id}/exec/run`, { cmd: 'sleep 5' }),
    wake: async (id) => {
      await api.post(`/api/sandboxes/${id}/hibernate`, {})
      return await api.post(`/api/sandboxes/${id}/wake`, {})
    },
    restore: async (id) => {
      const own = await api.post(`/api/sandboxes/${id}/checkpoints`, { name: 'own', kind: 'disk_only' })
      if (own.status !== 201) return own
      return await api.post(`/api/sandboxes/${id}/checkpoints/${own.body.id}/restore`, {})
    },
  }
  for (const [name, step] of Object.entries(steps)) {
    for (const delayMs of [0, 100]) {
      const id = await create()
      const answer = step(id)
      await sleep(delayMs)
      assert.equal((await remove(id)).status, 204)
      const { status, text } = await answer
      assert.ok([200, 201, 409, 410].includes(status), `${name} after ${delayMs} ms: ${status} ${text}`)
      for (const made of (await api.get(`/api/sandboxes/${id}/checkpoints`)).body as Checkpoint[]) {
        assert.equal((await api.delete(`/api/sandboxes/${id}/checkpoints/${made.id}`)).status, 204)
      }
      assert.equal((await api.get(`/api/sandboxes/${id}`)).body.status, 'stopped')
      await holdsAgain(server.dataDir, held, `${name}, deleted after ${delayMs} ms`)
    }
  }
  await remove(source)
  await api.delete(`/api/sandboxes/${source}/checkpoints/${cp}`)
})
