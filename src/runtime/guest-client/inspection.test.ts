import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { refuses } from '../../lib/testing/refuses.ts'
import { GuestProcess } from './testing/guest-process.ts'
import { eventually } from '../../lib/testing/eventually.ts'

/** In a pid namespace of its own, so that it sees and signals its own processes alone. */
const machine = await GuestProcess.start({ asInit: true })
const { guest } = machine
after(() => machine[Symbol.asyncDispose]())

const server = `
import socket, sys, time
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
time.sleep(1000)
`

/** A process that listens on a port, which it prints. */
async function listening(id: string, address: string, privatePorts = false): Promise<number> {
  await guest.spawn({ id, argv: ['python3', '-c', server, address], envs: {}, privatePorts })
  let port = 0
  await eventually(
    async () => {
      port = Number((await guest.output(id)).stdout.toString())
      return port > 0
    },
    { what: 'it listens' },
  )
  return port
}

test('listeners: an address, the process and its command are told, and private ports are left out', async () => {
  const open = await listening('open', '127.0.0.1')
  const hidden = await listening('hidden', '127.0.0.1', true)
  const { pid } = await guest.process('open')
  const listeners = await guest.listeners()
  const found = listeners.find(({ port }) => port === open)
  assert.deepEqual([found?.address, found?.pid], ['127.0.0.1', pid])
  assert.match(found?.command ?? '', /^python3 -c /)
  assert.ok((found?.command ?? '').length <= 256)
  assert.ok(!listeners.some(({ port }) => port === hidden))
  assert.ok((await guest.ports()).includes(hidden))
})

test('system processes: all are listed, by whomever they were started, with what they use', async () => {
  await guest.spawn({ id: 'outer', argv: ['sh', '-c', 'sleep 1001 & sleep 1002'], envs: {}, user: 'nobody' })
  // One that has just been started runs until the processor has a moment for it.
  const sleeps = ({ command, state }: { command: string; state: string }) =>
    command.startsWith('sleep 100') && state === 'sleeping'
  await eventually(async () => (await guest.systemProcesses()).filter(sleeps).length === 2, { what: 'both sleep' })
  const all = await guest.systemProcesses()
  const { pid } = await guest.process('outer')
  const inner = all.filter(({ command }) => command.startsWith('sleep 100'))
  assert.deepEqual(
    inner.map(({ parentPid }) => parentPid),
    [pid, pid],
  )
  for (const process of inner) {
    assert.deepEqual([process.user, process.state], ['nobody', 'sleeping'])
    assert.ok(process.memoryBytes > 4096 && process.cpuSeconds < 5)
    assert.ok(Math.abs(Date.now() - Date.parse(process.startedAt)) < 30_000, process.startedAt)
  }
  assert.equal(all[0]?.pid, 1)
})

test('system processes: a command of any bytes is text', async () => {
  await guest.spawn({ id: 'bytes', argv: ['bash', '-c', "exec -a $'a\\xff\\x1bb' sleep 1003"], envs: {} })
  await eventually(
    async () => {
      return (await guest.systemProcesses()).some(({ command }) => command === 'a\u{fffd}\u{fffd}b 1003')
    },
    { what: 'it sleeps' },
  )
})

test('system signal: it ends that process; PID 1 and an agent are refused, and what is gone is not found', async () => {
  await guest.spawn({ id: 'victim', argv: ['sleep', '1000'], envs: {} })
  const { pid } = await guest.process('victim')
  await guest.systemSignal(pid, 15)
  assert.equal((await guest.process('victim', 60_000)).exitCode, 143)
  await refuses(guest.systemSignal(pid, 15), 'not_found')
  await refuses(guest.systemSignal(1, 9), 'forbidden')
  await guest.spawn({ id: 'agent', argv: ['sleep', '1000'], envs: {}, privatePorts: true })
  await refuses(guest.systemSignal((await guest.process('agent')).pid, 9), 'forbidden')
})
