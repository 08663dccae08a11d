import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { roundsOf } from '../../src/lib/testing/thorough.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import type { DriverUnderTest } from './driver.ts'
import { count, counterPort, evaluate, loops, startLoad, createLoaded } from './driver-memory-load.ts'
import {
  create,
  freshId,
  memoryLimitBytes,
  memoryTests,
  python,
  remove,
  sendLine,
  specOf,
  startPython,
  succeed,
} from './driver-shell.ts'

const forksAtOnce = 10
const generations = roundsOf(3, 5)
const clockToleranceSeconds = 2
const netWaitMs = 120_000

/** What full checkpoints and hibernation keep. A driver that declares that it cannot keep memory is not asked. */
export function memoryConformance(under: () => DriverUnderTest): void {
  const test = memoryTests(under)

  test(`fork: ${forksAtOnce} at once have the memory and disk of the checkpoint`, async ({
    driver,
    guest,
    fixture,
  }) => {
    const before = await fixture.trace()
    const [source, cp] = [await createLoaded(under()), freshId('cp')]
    await evaluate(guest(source), '[x := 41]')
    await succeed(guest(source), 'echo checkpoint > /workspace/file')
    const { sizeBytes } = await driver.checkpoint(source, cp, 'full')
    assert.ok(sizeBytes > 1024 * 1024)
    assert.equal(await count(guest(source)), 2, 'the source runs on')
    await succeed(guest(source), 'echo source > /workspace/file')

    const forks = Array.from({ length: forksAtOnce }, () => freshId('sb'))
    await Promise.all(forks.map((id) => driver.create(specOf(id, { from: { checkpointId: cp } }))))
    await driver.deleteCheckpoint(cp)
    const told = await Promise.all(
      forks.map(async (id, index) => {
        const own = guest(id)
        for (let more = 0; more < index; more += 1) await count(own)
        assert.equal(await count(own), 2 + index)
        assert.equal(await evaluate(own, 'x + 1'), '42')
        assert.ok(await loops(own))
        assert.equal(await succeed(own, 'cat /workspace/file; echo fork > /workspace/file'), 'checkpoint')
        return identityOf(own)
      }),
    )
    for (const key of ['address', 'machine', 'random'] as const) {
      assert.equal(new Set(told.map((identity) => identity[key])).size, forksAtOnce, key)
    }
    assert.deepEqual(
      told.map((identity) => identity.hostname),
      forks.map((id) => `${id} ${id}`),
    )
    assert.equal(await succeed(guest(source), 'cat /workspace/file'), 'source')
    assert.equal(await count(guest(source)), 3)
    await remove(driver, source, ...forks)
    assert.deepEqual(await fixture.trace(), before)
  })

  test('fork: without the memory of the checkpoint one has its disk alone', async ({ driver, guest }) => {
    const [source, cp, fork] = [await createLoaded(under()), freshId('cp'), freshId('sb')]
    await evaluate(guest(source), '[x := 41]')
    await succeed(guest(source), 'echo checkpoint > /workspace/file')
    await driver.checkpoint(source, cp, 'full')
    await driver.create(specOf(fork, { from: { checkpointId: cp, memory: false } }))
    assert.equal(await succeed(guest(fork), 'cat /workspace/file; hostname'), `checkpoint\n${fork}`)
    const processes = await succeed(guest(fork), 'for p in /proc/[0-9]*; do tr "\\0" " " <$p/cmdline; echo; done')
    assert.doesNotMatch(processes, /python/)
    assert.equal(driver.hasMemory(fork), false)
    // A hibernation keeps its own.
    await succeed(guest(fork), 'echo own > /workspace/file')
    await driver.hibernate(fork)
    await driver.wake(specOf(fork))
    assert.equal(await succeed(guest(fork), 'cat /workspace/file'), 'own')
    await remove(driver, source, fork, cp)
  })

  test('checkpoint: memory and disk are of the same moment', async ({ driver, guest }) => {
    const [source, cp] = [await create(driver), freshId('cp')]
    // Between its two writes nothing else happens: a snapshot of another moment than the memory shows a gap.
    const program = `
import os, signal
file = os.open("/root/n", os.O_RDWR | os.O_CREAT)
n = 0
def tell(*_):
    os.write(os.open("/root/told", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), f"{n} {os.pread(file, 20, 0).decode()}".encode())
    os._exit(0)
signal.signal(signal.SIGUSR1, tell)
while True:
    n += 1
    os.pwrite(file, b"%d" % n, 0)`
    await guest(source).spawn({ id: 'writer', argv: ['/usr/bin/python3', '-c', program], envs: {} })
    await succeed(guest(source), 'until test -s /root/n; do sleep 0.02; done')
    for (let round = 0; round < 3; round += 1) {
      const checkpoint = `${cp}-${round}`
      await driver.checkpoint(source, checkpoint, 'full')
      const fork = await create(driver, { from: { checkpointId: checkpoint } })
      const { pid } = await guest(fork).process('writer')
      const tell = `kill -USR1 ${pid}; until test -s /root/told; do sleep 0.02; done; cat /root/told`
      const [memory = 0, disk = 0] = (await succeed(guest(fork), tell)).split(' ').map(Number)
      // One step apart when the moment lay between counting and writing.
      assert.ok(memory - disk === 0 || memory - disk === 1, `${memory} in memory, ${disk} on disk`)
      await remove(driver, fork, checkpoint)
    }
    await driver.delete(source)
  })

  test(`fork: works ${generations} deep with every ancestor removed`, async ({ driver, guest, fixture }) => {
    const before = await fixture.trace()
    let id = await createLoaded(under())
    for (let generation = 1; generation <= generations; generation += 1) {
      await succeed(guest(id), `echo ${generation} >> /workspace/log`)
      const cp = freshId('cp')
      await driver.checkpoint(id, cp, 'full')
      await driver.delete(id)
      id = freshId('sb')
      await driver.create(specOf(id, { from: { checkpointId: cp } }))
      await driver.deleteCheckpoint(cp)
      assert.equal(await count(guest(id)), 1 + generation)
    }
    const log = await succeed(guest(id), 'tail -n 1 /workspace/log; wc -l < /workspace/log')
    assert.equal(log, `${generations}\n${generations}`)
    assert.ok(await loops(guest(id)))
    await driver.delete(id)
    assert.deepEqual(await fixture.trace(), before)
  })

  test('hibernate: keeps processes, prompts, address and files', async ({ driver, guest, restart }) => {
    const id = await createLoaded(under())
    await evaluate(guest(id), '[x := 1]')
    const address = await succeed(guest(id), 'hostname -I')
    for (let round = 1; round <= 3; round += 1) {
      const { sizeBytes } = await driver.hibernate(id)
      assert.ok(sizeBytes > 1024 * 1024)
      assert.equal((await driver.hibernate(id)).sizeBytes > 1024 * 1024, true, 'a repeat is harmless')
      await driver.wake(specOf(id, { memoryMb: 256 + round }))
      assert.equal(await count(guest(id)), 1 + round)
      assert.equal(await evaluate(guest(id), `[x := x + 1]`), `[${1 + round}]`)
      assert.equal(await succeed(guest(id), 'hostname -I'), address)
    }
    assert.equal(await memoryLimitBytes(guest(id)), 259 * 1024 * 1024)
    await driver.hibernate(id)
    assert.deepEqual((await restart({ sandboxIds: [id] })).dormant, [id])
    const next = under()
    await next.driver.wake(specOf(id))
    assert.equal(await count(next.guest(id)), 5, 'it outlives the server')
    assert.deepEqual((await restart({ sandboxIds: [id] })).running, [id])
    assert.equal(await count(under().guest(id)), 6)
    await under().driver.delete(id)
  })

  test('checkpoint: a full one of a hibernated sandbox works', async ({ driver, guest }) => {
    const [source, cp] = [await createLoaded(under()), freshId('cp')]
    await driver.hibernate(source)
    await driver.checkpoint(source, cp, 'full')
    const fork = await create(driver, { from: { checkpointId: cp } })
    await driver.wake(specOf(source))
    for (const id of [fork, source]) assert.equal(await count(guest(id)), 2)
    await remove(driver, source, fork, cp)
  })

  test('fork: clock and loopback work; outside connections are closed', async ({ driver, guest }) => {
    const [fork, cp] = [freshId('sb'), freshId('cp')]
    const peers: Socket[] = []
    const { listenHost, listenPort, insideHost } = driver.gateway()
    const gateway = createServer((socket) => peers.push(socket.on('error', () => undefined)))
    gateway.listen(listenPort, listenHost)
    gateway.unref()
    await once(gateway, 'listening')
    const source = await create(driver)
    await startLoad(guest(source))
    const program = `
import socket, threading
listener = socket.create_server(("127.0.0.1", 4000))
inner = socket.create_connection(("127.0.0.1", 4000)); far, _ = listener.accept()
outer = socket.create_connection(("${insideHost}", ${listenPort}))
print("ready", flush=True)
input()
inner.sendall(b"still here"); print("inner", far.recv(100).decode(), flush=True)
try:
    outer.sendall(b"x"); print("outer", outer.recv(1), flush=True)
except OSError as error:
    print("outer", error.strerror, flush=True)`
    await startPython(guest(source), 'net', program)
    const saidBy = async (id: string) => (await guest(id).output('net')).stdout.toString()
    await driver.checkpoint(source, cp, 'full')
    await driver.create(specOf(fork, { from: { checkpointId: cp } }))
    await sendLine(guest(fork), 'net')
    await guest(fork).process('net', netWaitMs)
    assert.match(await saidBy(fork), /inner still here\nouter Software caused connection abort/)
    assert.equal((await guest(source).process('net')).running, true, 'those of the source are open')
    const asked = Date.now() / 1000
    const clock = Number(await succeed(guest(fork), 'date +%s'))
    const answered = Date.now() / 1000
    assert.ok(clock >= asked - clockToleranceSeconds && clock <= answered + clockToleranceSeconds)
    assert.ok((await guest(fork).ports()).includes(counterPort))
    const sockets = `import socket\nsocket.create_server(("127.0.0.1", 81)).close()\nsocket.socket(2, 2, socket.IPPROTO_ICMP)`
    await python(guest(fork), sockets)
    const connection = await guest(fork).dial(counterPort)
    connection.destroy()
    await remove(driver, source, fork, cp)
    for (const peer of peers) peer.destroy()
    await new Promise((resolve) => gateway.close(resolve))
  })

  test('fork: keeps stopped jobs, removed open files and locks', async ({ driver, guest }) => {
    const [source, fork, cp] = [await create(driver), freshId('sb'), freshId('cp')]
    const program = `
import fcntl, os, subprocess
job = subprocess.Popen(["sleep", "1000"]); job.send_signal(19)
gone = open("/root/gone", "w+b"); gone.write(os.urandom(3 << 20)); gone.flush(); os.unlink("/root/gone")
open("/root/one", "w").write("linked"); os.link("/root/one", "/root/two"); one = open("/root/one"); os.unlink("/root/one")
lock = open("/root/lock", "w"); fcntl.flock(lock, fcntl.LOCK_EX)
hosts = open("/etc/hosts")
print(job.pid, flush=True)
input()
gone.seek(0); print(len(gone.read()), one.read())`
    await startPython(guest(source), 'holder', program)
    const saidBy = async (id: string) => (await guest(id).output('holder')).stdout.toString()
    const job = Number(await saidBy(source))
    await driver.checkpoint(source, cp, 'full')
    await driver.create(specOf(fork, { from: { checkpointId: cp } }))
    for (const id of [source, fork]) {
      assert.match(await succeed(guest(id), `cat /proc/${job}/stat`), /\) T /)
      assert.notEqual(await succeed(guest(id), 'flock --nonblock /root/lock true; echo $?'), '0')
      await sendLine(guest(id), 'holder')
      await guest(id).process('holder', 10_000)
      assert.match(await saidBy(id), /3145728 linked/)
      await driver.delete(id)
    }
    await driver.deleteCheckpoint(cp)
  })
}

async function identityOf(guest: Guest) {
  const look =
    'hostname -I; cat /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1; echo $(hostname) $(cat /etc/hostname)'
  const [address, machine, random, hostname] = (await succeed(guest, look)).split('\n')
  return { address, machine, random, hostname }
}
