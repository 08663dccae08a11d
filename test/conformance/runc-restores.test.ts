/** What lies across the border of a sandbox or of two of its processes, and has to be put together again when memory comes back. */
import assert from 'node:assert/strict'
import { mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import { useRunc } from './driver-runc-host.ts'
import { makeForgetfulCriu } from './held-criu.ts'
import { create, freshId, outputOnce, remove, sendLine, specOf, startPython, succeed } from './driver-shell.ts'

/**
 * Connections whose readers have not read yet: two with more than fits on the way, one of them with an end of what is written, and many
 * small ones, of which the kernel tries some again at any moment. Beside them some with nothing on the way, which send on in large segments.
 */
const unreadConnections = `
import hashlib, signal, socket, sys
def pair(family, host, buffer=0):
    listener = socket.create_server((host, 0), family=family)
    client = socket.create_connection(listener.getsockname()[:2])
    if buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    return client, listener.accept()[0]
def fill(client):
    client.setblocking(False)
    digest, sent, piece = hashlib.sha256(), 0, bytes(range(256)) * 256
    try:
        while sent < 8 << 20:
            count = client.send(piece)
            digest.update(piece[:count])
            sent += count
    except BlockingIOError:
        pass
    return digest.hexdigest(), sent
pairs = [pair(socket.AF_INET, "127.0.0.1"), pair(socket.AF_INET6, "::1")]
pairs += [pair(socket.AF_INET, "127.0.0.1", 100_000) for _ in range(50)]
sent = [fill(client) for client, _ in pairs]
idle = [pair(socket.AF_INET, "127.0.0.1"), pair(socket.AF_INET6, "::1")]
pairs[0][0].shutdown(socket.SHUT_WR)
assert all(count > 200_000 for _, count in sent), sent
def too_late(*_):
    raise Exception(f"too late, with {arrived_pairs} arrived: " + open("/proc/net/tcp").read() + open("/proc/net/tcp6").read() + open("/proc/net/netstat").read())
signal.signal(signal.SIGALRM, too_late)
arrived_pairs = 0
print("ready", flush=True)
for line in sys.stdin:
    signal.alarm(300)
    for client, peer in idle:
        client.send(b"on")
        assert peer.recv(2) == b"on"
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) > 30_000, "small segments"
    for arrived_pairs, ((client, peer), (digest, count)) in enumerate(zip(pairs, sent)):
        # Two minutes are the longest pause between two attempts of the kernel.
        peer.settimeout(150)
        arrived, total = hashlib.sha256(), 0
        while total < count:
            piece = peer.recv(min(1 << 20, count - total))
            assert piece, "an early end"
            arrived.update(piece)
            total += len(piece)
        assert arrived.hexdigest() == digest, "other bytes"
        peer.sendall(b"back")
        assert client.recv(4) == b"back"
    assert pairs[0][1].recv(1) == b"", "no end"
    signal.alarm(0)
    print("whole", flush=True)`

const boundFiles = ['/etc/hosts', '/etc/resolv.conf', '/etc/hostname'] as const

/** Watches on files that are mounted by themselves, which nobody inside can write; a line waits until each has been opened since. */
const watches = `
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
inotify = libc.inotify_init1(0)
names = {libc.inotify_add_watch(inotify, name.encode(), 0xfff): name for name in ${JSON.stringify(boundFiles)}}
assert -1 not in names
print("ready", flush=True)
for line in sys.stdin:
    seen = set()
    while len(seen) < len(names):
        events = os.read(inotify, 65536)
        while events:
            wd, mask, cookie, length = struct.unpack_from("iIII", events)
            events = events[16 + length:]
            seen.add(names.get(wd, f"unknown {wd}"))
    print(*sorted(seen), flush=True)`

async function answers(guest: Guest, id: string, expected: string): Promise<void> {
  const before = (await guest.output(id)).stdout.toString()
  await sendLine(guest, id)
  const isAnswered = (stdout: string) => stdout.length > before.length && stdout.endsWith('\n')
  const stdout = await outputOnce(guest, id, isAnswered)
  assert.equal(stdout.slice(before.length).trim(), expected)
}

for (const [name, options] of [
  ['at once', {}],
  ['lazily', { lazyMemoryBytesMin: 1 }],
] as const) {
  describe(`memory that comes back ${name}`, () => {
    const runc = useRunc({ ...options })
    const { guest } = runc

    /** Asks in a woken sandbox, in a fork whose source is gone, in a fork of that, and after a restore in place. */
    async function everywhere(program: string, ask: (sandbox: Guest) => Promise<void>): Promise<void> {
      const [first, second] = [freshId('cp'), freshId('cp')]
      const source = await create(runc.driver)
      await startPython(guest(source), 'program', program)
      await runc.driver.checkpoint(source, first, 'full')
      await runc.driver.hibernate(source)
      await runc.driver.wake(specOf(source))
      await ask(guest(source))
      await runc.driver.restore(specOf(source), first)
      await ask(guest(source))
      await remove(runc.driver, source)
      const fork = await create(runc.driver, { from: { checkpointId: first } })
      await runc.driver.checkpoint(fork, second, 'full')
      await ask(guest(fork))
      await remove(runc.driver, fork, first)
      const grandchild = await create(runc.driver, { from: { checkpointId: second } })
      await ask(guest(grandchild))
      await remove(runc.driver, grandchild, second)
    }

    test('connections: what was sent and not yet read arrives, and the rest after it', () =>
      everywhere(unreadConnections, (sandbox) => answers(sandbox, 'program', 'whole')))

    test('watches: files that are mounted by themselves are watched, each sandbox its own', () =>
      everywhere(watches, async (sandbox) => {
        await succeed(sandbox, `cat ${boundFiles.join(' ')}`)
        await answers(sandbox, 'program', boundFiles.toSorted().join(' '))
      }))
  })
}

describe('a CRIU without changes, which loses POSIX locks', () => {
  const folder = mkdtempSync(join(tmpdir(), 'atoll-forgetful-'))
  const imageDir = makeForgetfulCriu(folder)
  const runc = useRunc({ imageDir })
  const { guest } = runc
  after(() => rm(folder, { recursive: true }))

  test('saves no sandbox that holds one, and leaves it as it is', async () => {
    const id = await create(runc.driver)
    const program = `
import fcntl
file = open("/root/locked", "w+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
while True: print(input(), flush=True)`
    await startPython(guest(id), 'program', program)
    const refused = { code: 'conflict', message: /holds a POSIX lock .* npm run setup/ }
    await assert.rejects(runc.driver.checkpoint(id, freshId('cp'), 'full'), refused)
    await assert.rejects(runc.driver.hibernate(id), refused)
    await sendLine(guest(id), 'program', 'on')
    await outputOnce(guest(id), 'program', (stdout) => stdout.endsWith('on\n'))
    await guest(id).signal('program', 9)
    assert.equal((await guest(id).process('program', 10_000)).running, false)
    await runc.driver.hibernate(id)
    await runc.driver.wake(specOf(id))
    await remove(runc.driver, id)
  })

  test('saves no sandbox with an eventfd that is a semaphore', async () => {
    const id = await create(runc.driver)
    const program = `
import os
counter, semaphore = os.eventfd(1), os.eventfd(2, os.EFD_SEMAPHORE)
print("ready", flush=True)
while True: print(input(), flush=True)`
    await startPython(guest(id), 'program', program)
    const refused = { code: 'conflict', message: /an eventfd is a semaphore .* npm run setup/ }
    await assert.rejects(runc.driver.hibernate(id), refused)
    await answers(guest(id), 'program', '')
    await guest(id).signal('program', 9)
    assert.equal((await guest(id).process('program', 10_000)).running, false)
    await runc.driver.hibernate(id)
    await runc.driver.wake(specOf(id))
    await remove(runc.driver, id)
  })
})
