/** The first API key, which is shown once, when first starts over the same data fail. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { listen } from '../support/listen.ts'
import { AtollServer, freeSubnet } from './server.ts'

const folder = await mkdtemp('/var/tmp/atoll-first-key-')
after(() => rm(folder, { recursive: true }))

/** Starts a server without a configured key, which must end by itself; returns all that it printed. */
async function failedStart(options: Parameters<typeof AtollServer.start>[0]): Promise<string> {
  const error: unknown = await AtollServer.start({ ...options, key: '' }).then(
    () => assert.fail('the server has started'),
    (reason: unknown) => reason,
  )
  assert.ok(error instanceof Error)
  assert.match(error.message, /^the server ended:\n/)
  return error.message
}

const dataDir = () => join(folder, 'data')

test('first key: a first start whose port is taken says so and shows no key', async () => {
  const other = createServer((socket) => socket.destroy())
  const port = await listen(other)
  const output = await failedStart({ dataDir: dataDir(), port })
  other.close()
  assert.match(output, new RegExp(`^atoll: the API cannot listen at port ${port} of 127.0.0.1: another program `, 'm'))
  assert.doesNotMatch(output, /(?:API|Operator) key/)
})

test('first key: a first start whose gateway port is taken says so and shows no key', async () => {
  const subnet = freeSubnet()
  const address = subnet.replace(/0\/24$/, '1')
  const program = `import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND: the bridge comes later
s.bind(("${address}", 4180))
s.listen()
print("listens", flush=True)
sys.stdin.read()`
  const other = spawn('python3', ['-c', program], { stdio: ['pipe', 'pipe', 'inherit'] })
  await once(other.stdout, 'data')
  const output = await failedStart({ dataDir: dataDir(), subnet })
  other.stdin.end()
  await once(other, 'exit')
  assert.match(output, new RegExp(`^atoll: the model gateway cannot listen at port 4180 of ${address}: another `, 'm'))
  assert.doesNotMatch(output, /(?:API|Operator) key/)
})

test('first key: one that cannot be printed is not stored', async () => {
  const output = await failedStart({ dataDir: dataDir(), prefix: ['sh', '-c', 'exec "$@" >/dev/full', 'sh'] })
  assert.match(output, /^atoll: the first operator key cannot be printed: .*ENOSPC/m)
})

// A key that any of the failed starts had stored would keep this one from showing one.
test('first key: the first start that succeeds shows one that works, and later starts show none', async () => {
  await using server = await AtollServer.start({ dataDir: dataDir(), key: '' })
  assert.match(server.key, /^atoll_[0-9a-f]{48}$/)
  assert.equal((await server.fetch('/api/sandboxes')).status, 200)
  const [, operatorKey = ''] = /^Operator key, shown this once: (atoll_op_[0-9a-f]{48})$/m.exec(server.output) ?? []
  const asOperator = () => fetch(`${server.url}/api/orgs`, { headers: { 'x-api-key': operatorKey } })
  assert.equal((await asOperator()).status, 200)
  await server.stop()
  await server.restart()
  assert.equal((await asOperator()).status, 200)
  assert.equal((await server.fetch('/api/sandboxes')).status, 200)
  assert.equal(server.output.match(/API key, shown this once/g)?.length, 1, 'a later start shows none')
  assert.equal(server.output.match(/Operator key/g)?.length, 1)
})
