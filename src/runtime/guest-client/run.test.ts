import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { test } from 'node:test'
import type { SpawnRequest } from '../../sandbox/ports/guest.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { createGuest, guestConnections } from './index.ts'
import { GuestProcess } from './testing/guest-process.ts'
import { eventually } from '../../lib/testing/eventually.ts'

const machine = await GuestProcess.startForFile()
const { guest } = machine
const options = { waitMs: 20_000, bytesMax: 64 * 1024 }

let runs = 0

/** A request of a new id. */
function shell(script: string): SpawnRequest {
  return { id: `run-${++runs}`, argv: ['sh', '-c', script], envs: {} }
}

/** A script that notes that it ran, and how often it did. */
function counted(script: string) {
  const file = join(machine.folder, `count-${++runs}`)
  const times = async () => (await readFile(file, 'utf8').catch(() => '')).length
  return { request: shell(`printf x >> ${file}; ${script}`), times }
}

/** Waits until the guest has the process. */
async function known(id: string): Promise<void> {
  await eventually(() => guest.process(id))
}

test('run: it returns the end of a process with its streams, and releases it', async () => {
  const request = shell('echo out; echo err >&2; exit 3')
  const { process, output } = await guest.run(request, options)
  assert.deepEqual([process.id, process.running, process.exitCode], [request.id, false, 3])
  assert.deepEqual([String(output?.stdout), String(output?.stderr), output?.truncated], ['out\n', 'err\n', false])
  await refuses(guest.process(request.id), 'not_found')
})

test('run: output up to the bound comes with the end, and a larger one stays in the guest', async () => {
  const fits = shell('printf 12345; printf 67890 >&2')
  assert.equal(String((await guest.run(fits, { ...options, bytesMax: 10 })).output?.stderr), '67890')
  await refuses(guest.process(fits.id), 'not_found')
  const exceeds = shell('printf 12345; printf 678901 >&2; exit 4')
  const { process, output } = await guest.run(exceeds, { ...options, bytesMax: 10 })
  assert.deepEqual([process.running, process.exitCode, output], [false, 4, undefined])
  assert.equal(String((await guest.output(exceeds.id)).stderr), '678901')
  await guest.release(exceeds.id)
})

test('run: a wait that is over leaves the process running', async () => {
  const request = shell('sleep 1000')
  const { process, output } = await guest.run(request, { ...options, waitMs: 50 })
  assert.deepEqual([process.running, output], [true, undefined])
  await guest.release(request.id)
})

test('run: an abort ends the wait alone', async () => {
  const request = shell('sleep 1000')
  const controller = new AbortController()
  const aborted = assert.rejects(guest.run(request, { ...options, signal: controller.signal }), /enough/)
  await known(request.id)
  controller.abort(new Error('enough'))
  await aborted
  assert.equal((await guest.process(request.id)).running, true)
  await guest.release(request.id)
})

test('run: repeats under the same id take part in the first, also when all come at once', async () => {
  for (let round = 0; round < 10; round++) {
    const go = join(machine.folder, `go-${round}`)
    const { request, times } = counted(`until [ -e ${go} ]; do sleep 0.02; done; sleep 0.5; echo done`)
    const all = Array.from({ length: 8 }, () => guest.run(request, options))
    // One that comes after the end would be the first of another process.
    await eventually(async () => (await guestConnections(() => machine.dial())) > all.length)
    await writeFile(go, '')
    for (const { output } of await Promise.all(all)) assert.equal(String(output?.stdout), 'done\n')
    assert.equal(await times(), 1)
  }
})

test('run: a request that is refused starts nothing', async () => {
  await refuses(guest.run({ ...shell('true'), cwd: '/nonexistent' }, options), 'invalid_request', /^cwd/)
  await refuses(guest.run({ ...shell('true'), argv: [] }, options), 'invalid_request', /^argv/)
  assert.equal((await guest.run({ ...shell(''), argv: ['no-such-program'] }, options)).process.exitCode, 127)
})

test('run: a connection that breaks is reported, and the process is not started again', async () => {
  const go = join(machine.folder, 'go-broken')
  const { request, times } = counted(`until [ -e ${go} ]; do sleep 0.02; done; echo done`)
  const connections: Duplex[] = []
  const broken = createGuest(async () => {
    const connection = await machine.dial()
    connections.push(connection)
    return connection
  })
  const refused = refuses(broken.run(request, options), 'unavailable')
  await eventually(async () => (await times()) === 1, { what: 'it has started' })
  for (const connection of connections) connection.destroy()
  await refused
  await writeFile(go, '')
  assert.equal((await guest.process(request.id, 20_000)).exitCode, 0)
  assert.equal(String((await guest.output(request.id)).stdout), 'done\n')
  assert.deepEqual([connections.length, await times()], [1, 1])
})
