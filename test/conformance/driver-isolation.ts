import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { refuses } from '../../src/lib/testing/refuses.ts'
import type { RuntimeDriver } from '../../src/sandbox/ports/runtime-driver.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import type { DriverUnderTest } from './driver.ts'
import {
  create,
  driverTests,
  freshId,
  python,
  remove,
  sendLine,
  shell,
  specOf,
  startPython,
  succeed,
} from './driver-shell.ts'

/** Link-local and private networks; a packet to any of them must not even leave. */
const deniedEverywhere = [
  '169.254.169.253',
  '169.254.1.1',
  '10.255.255.254',
  '172.16.0.1',
  '192.168.0.1',
  '100.64.0.1',
  '127.0.0.1',
]
const metadataAddress = '169.254.169.254'
const inPort = 9_321
const replaceWaitMs = 120_000

export function isolationConformance(under: () => DriverUnderTest): void {
  const test = driverTests(under)

  test('network: a sandbox reaches the gateway’s port and the name server, by name and by address', async () => {
    const { driver, guest } = under()
    const { listenHost, listenPort, insideHost } = driver.gateway()
    const gateway = createServer((connection) => connection.end('hello from the gateway\n'))
    gateway.listen(listenPort, listenHost)
    await once(gateway, 'listening')
    const id = await create(driver)
    assert.equal(await succeed(guest(id), `cat < /dev/tcp/${insideHost}/${listenPort}`), 'hello from the gateway')
    assert.equal(await python(guest(id), nameQuery(insideHost)), listenHost)
    await driver.delete(id)
    await new Promise((resolve) => gateway.close(resolve))
  })

  test('network: a sandbox reaches neither the host, nor private networks, nor a metadata service of the host', async () => {
    const { driver, guest, fixture } = under()
    const { listenHost, listenPort } = driver.metadata()
    const metadata = createServer((connection) => connection.destroy())
    metadata.listen(listenPort, listenHost)
    await once(metadata, 'listening')
    const id = await create(driver)
    const forbidden = fixture.forbidden()
    assert.ok(forbidden.length > 0)
    const endpoints = [
      ...forbidden,
      ...deniedEverywhere.map((address) => ({ address, port: 80 })),
      ...[53, 81, 443, listenPort].map((port) => ({ address: metadataAddress, port })),
      // The service by its address on the host.
      { address: listenHost, port: listenPort },
    ]
    assert.deepEqual(await reached(guest(id), endpoints), [])
    await driver.delete(id)
    await new Promise((resolve) => metadata.close(resolve))
  })

  test('network: a sandbox reaches the metadata service, which knows it by its address, after a wake and in a fork too', async () => {
    const { driver, guest } = under()
    const { listenHost, listenPort } = driver.metadata()
    const metadata = createServer((peer) => peer.end(`${driver.sandboxAt(peer.remoteAddress ?? '')}\n`))
    metadata.listen(listenPort, listenHost)
    await once(metadata, 'listening')
    const [id, fork, cp] = [await create(driver), freshId('sb'), freshId('cp')]
    await driver.checkpoint(id, cp, 'full')
    await driver.hibernate(id)
    await Promise.all([driver.wake(specOf(id)), driver.create(specOf(fork, { from: { checkpointId: cp } }))])
    for (const sandbox of [id, fork]) {
      assert.equal(await succeed(guest(sandbox), `cat < /dev/tcp/${metadataAddress}/80`), sandbox)
    }
    await remove(driver, id, fork, cp)
    await new Promise((resolve) => metadata.close(resolve))
  })

  test('network: no sandbox reaches another', async ({ driver, guest }) => {
    const [one, two] = await Promise.all([create(driver), create(driver)])
    const server = `
import socket
s = socket.create_server(("0.0.0.0", ${inPort}))
print("ready", flush=True)
while True: s.accept()[0].close()`
    await startPython(guest(two), 'server', server)
    const address = await succeed(guest(two), 'hostname -I')
    assert.deepEqual(await reached(guest(two), [{ address, port: inPort }]), [`${address}:${inPort}`])
    assert.deepEqual(await reached(guest(one), [{ address, port: inPort }]), [])
    await remove(driver, one, two)
  })

  test('network: the gateway is the only neighbour of a sandbox, after a wake and in a fork too', async () => {
    const { driver, guest } = under()
    const { listenHost } = driver.gateway()
    const [id, fork, cp] = [await create(driver), freshId('sb'), freshId('cp')]
    await driver.checkpoint(id, cp, 'full')
    await driver.hibernate(id)
    await Promise.all([driver.wake(specOf(id)), driver.create(specOf(fork, { from: { checkpointId: cp } }))])
    for (const sandbox of [id, fork]) assert.equal(await python(guest(sandbox), neighbours(listenHost)), listenHost)
    await remove(driver, id, fork, cp)
  })

  test('DNS: a sandbox that holds connections to the name server does not block others', async ({ driver, guest }) => {
    const { listenHost } = driver.gateway()
    const [greedy, other] = await Promise.all([create(driver), create(driver)])
    const held = await python(
      guest(greedy),
      `
import os, signal, socket
held = []
try:
    while len(held) < 30: held.append(socket.create_connection(("${listenHost}", 53), timeout=2))
except OSError: pass
print(len(held), flush=True)
if os.fork() == 0:
    for stream in range(3): os.close(stream)
    signal.pause()`,
    )
    assert.equal(held, '2')
    await succeed(guest(other), `: < /dev/tcp/${listenHost}/53`)
    await remove(driver, greedy, other)
  })

  test('root: can neither mount, nor make namespaces or devices, nor touch the kernel', async ({ driver, guest }) => {
    const id = await create(driver)
    const refused = [
      'mount -t tmpfs none /mnt',
      'mount --bind /root /mnt',
      'umount /proc',
      'unshare --user true',
      'unshare --mount true',
      'echo b > /proc/sysrq-trigger',
      'echo 1 > /proc/sys/kernel/panic',
      'echo 1 > /sys/kernel/mm/ksm/run',
      'cd /sys/fs/cgroup; if test -d memory; then echo -1 > memory/memory.limit_in_bytes; else echo max > memory.max; fi',
      'cd /sys/fs/cgroup; test ! -d memory || cd memory; mkdir own',
      'mknod /root/disk b 8 0 && head -c 1 /root/disk',
      // Hidden behind an empty file where the kernel has it.
      'head -c 1 /proc/kcore | grep -q .',
      'dmesg',
      'hostname other',
      // SIOCSIFADDR on eth0: another address would be another sandbox's.
      `python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8916, struct.pack("16sHH4s8x", b"eth0", 2, 0, bytes([10, 9, 9, 9])))'`,
    ]
    for (const script of refused) {
      const { exitCode, stderr } = await shell(guest(id), script)
      assert.notEqual(exitCode, 0, script)
      assert.doesNotMatch(stderr, /command not found/, script)
    }
    await driver.delete(id)
  })

  test('system calls: those that reach beyond a sandbox fail', async ({ driver, guest }) => {
    const id = await create(driver)
    const told = await python(
      guest(id),
      `
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
calls = {
    "init_module": 175 if x86 else 105,
    "kexec_load": 246 if x86 else 104,
    "bpf": 321 if x86 else 280,
    "keyctl": 250 if x86 else 219,
    "perf_event_open": 298 if x86 else 241,
    "userfaultfd": 323 if x86 else 282,
    "open_by_handle_at": 304 if x86 else 265,
    "setns": 308 if x86 else 268,
    "pivot_root": 155 if x86 else 41,
    "open_tree": 428,
    "fsopen": 430,
    "io_uring_setup": 425,
    "clone3": 435,
}
for name, number in calls.items():
    ctypes.set_errno(0)
    result = libc.syscall(number, 0, 0, 0, 0, 0)
    print(name, result, ctypes.get_errno())`,
    )
    const lines = told.split('\n').map((line) => line.split(' '))
    assert.equal(lines.length, 13)
    for (const [name, result, errno] of lines) {
      const absent = name === 'io_uring_setup' || name === 'clone3'
      assert.deepEqual([name, result, errno], [name, '-1', absent ? '38' : '1'])
    }
    await driver.delete(id)
  })

  test('view: a sandbox sees only its own processes, devices and name', async ({ driver, guest }) => {
    const id = await create(driver)
    const processes = await succeed(guest(id), 'ls -d /proc/[0-9]* | wc -l')
    assert.ok(Number(processes) < 10, processes)
    const devices = await succeed(guest(id), 'ls /dev')
    // `core` is a link to what is hidden, where the kernel has /proc/kcore.
    const usual = 'fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero'
    assert.equal(devices.replace(/^core\n/, '').replaceAll('\n', ' '), usual)
    assert.equal(await succeed(guest(id), 'readlink /proc/1/fd/0 /proc/1/fd/1 /proc/1/fd/2 | sort -u'), '/dev/null')
    assert.match(await succeed(guest(id), 'grep NoNewPrivs /proc/1/status'), /1$/)
    await driver.delete(id)
  })

  test('root: owners, users, low ports, ping sockets, ptrace, sockets and threads work', async ({ driver, guest }) => {
    const id = await create(driver, { memoryMb: 512 })
    await succeed(guest(id), 'touch /root/f && chown 1000:1000 /root/f && chmod u+s /root/f')
    await succeed(guest(id), 'useradd -m dev && setpriv --reuid=dev --regid=dev --clear-groups true')
    const told = await python(
      guest(id),
      `
import multiprocessing, os, socket, threading
socket.create_server(("0.0.0.0", 80)).close()
socket.create_server(("::1", 81), family=socket.AF_INET6).close()
socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).close()
lock = multiprocessing.Lock()
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
os.memfd_create("x")
print("fine")`,
    )
    assert.equal(told, 'fine')
    await driver.delete(id)
  })

  test('guest socket: the host does not follow one that was replaced by a link to a host socket', async () => {
    const { driver, guest, fixture } = under()
    const id = await create(driver)
    const { path, connections } = fixture.hostSocket()
    // Replaced in one step.
    const replace = `read; cd /.atoll/run && ln -s ${path} link && mv -T link guest.sock`
    await fixture.giveSocketFolder(id)
    await guest(id).spawn({ id: 'replace', argv: ['/bin/bash', '-c', replace], envs: {}, stdin: true })
    // The answer to this may be lost with the socket.
    await sendLine(guest(id), 'replace').catch(() => undefined)
    const until = Date.now() + replaceWaitMs
    while ((await canDial(driver, id)) && Date.now() < until) await sleep(50)
    await refuses(driver.dial(id), 'unavailable')
    assert.equal(fixture.hostSocket().connections, connections)
    await driver.delete(id)
  })
}

async function canDial(driver: RuntimeDriver, id: string): Promise<boolean> {
  try {
    const connection = await driver.dial(id)
    connection.destroy()
    return true
  } catch {
    return false
  }
}

/** Which of these endpoints accept a connection from inside, all tried at once. */
async function reached(guest: Guest, endpoints: readonly { address: string; port: number }[]): Promise<string[]> {
  const tries = endpoints.map(({ address, port }) => {
    const target = `${address}:${port}`
    return `(timeout 10 bash -c ': < /dev/tcp/${address}/${port}' 2>/dev/null && echo ${target}) &`
  })
  const told = await succeed(guest, `${tries.join('\n')}\nwait; true`)
  return told === '' ? [] : told.split('\n').toSorted()
}

/** Sends to many addresses of the subnet and prints those that the kernel keeps as neighbours. */
function neighbours(gateway: string): string {
  return `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
prefix = "${gateway}".rsplit(".", 1)[0]
for last in range(100, 200): s.sendto(b"", (prefix + "." + str(last), 9))
print("\\n".join(line.split()[0] for line in open("/proc/net/arp").readlines()[1:]))`
}

/** Asks the name server of resolv.conf itself, past /etc/hosts, and prints the address. */
function nameQuery(name: string): string {
  return `
import re, socket
server = re.search(r"nameserver (\\S+)", open("/etc/resolv.conf").read()).group(1)
labels = b"".join(bytes([len(part)]) + part.encode() for part in "${name}".split("."))
query = b"\\x12\\x34\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00" + labels + b"\\x00\\x00\\x01\\x00\\x01"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.sendto(query, (server, 53))
print(socket.inet_ntoa(s.recv(512)[-4:]))`
}
