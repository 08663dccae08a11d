import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test, type TestContext } from 'node:test'
import type { RuntimeDriver, SandboxSpec } from '../../src/sandbox/ports/runtime-driver.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import { slowness } from '../../src/lib/testing/eventually.ts'
import type { DriverUnderTest } from './driver.ts'

export { slowness }
const shellWaitMs = 60_000 * slowness

/** `test`, whose body gets the driver that is open when it begins. */
export function driverTests(under: () => DriverUnderTest) {
  return (name: string, body: (under: DriverUnderTest, t: TestContext) => Promise<void>): void =>
    void test(name, (t) => body(under(), t))
}

/** The same, for drivers that keep memory; others have nothing to show. */
export function memoryTests(under: () => DriverUnderTest): ReturnType<typeof driverTests> {
  const register = driverTests(under)
  return (name, body) =>
    register(name, async (now, t) => {
      if (now.driver.capabilities.fullCheckpoints) await body(now, t)
    })
}

/** A small sandbox of the base image. */
export function specOf(id: string, more: Partial<SandboxSpec> = {}): SandboxSpec {
  return { id, image: 'base', cpuCount: 1, memoryMb: 256, diskMb: 256, ...more }
}

/** Ids are new in each test, so that no test meets what another left. */
export function freshId(prefix: 'sb' | 'cp' | 'vol'): string {
  return `${prefix}-${randomUUID().replaceAll('-', '').slice(0, 12)}`
}

/** A running sandbox of a new id. */
export async function create(driver: RuntimeDriver, more: Partial<SandboxSpec> = {}): Promise<string> {
  const id = freshId('sb')
  await driver.create(specOf(id, more))
  return id
}

/** Deletes sandboxes, checkpoints and volumes, which their ids tell apart, in this order. */
export async function remove(driver: RuntimeDriver, ...ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    if (id.startsWith('vol-')) await driver.deleteVolume(id)
    else await (id.startsWith('cp-') ? driver.deleteCheckpoint(id) : driver.delete(id))
  }
}

/** What a trace shows but processes, which come and go in a sandbox as they like. */
export function things(trace: readonly string[]): string[] {
  return trace.filter((line) => !line.startsWith('process'))
}

export interface ShellResult {
  exitCode: number
  stdout: string
  stderr: string
}

/** Runs a bash script inside as root and waits for its end. */
export async function shell(guest: Guest, script: string): Promise<ShellResult> {
  const id = randomUUID()
  await guest.spawn({
    id,
    argv: ['/bin/bash', '-c', script],
    envs: { PATH: '/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' },
  })
  const ended = await guest.process(id, shellWaitMs)
  assert.equal(ended.running, false, `this script did not end: ${script}`)
  const output = await guest.output(id)
  await guest.release(id)
  return { exitCode: ended.exitCode ?? -1, stdout: output.stdout.toString(), stderr: output.stderr.toString() }
}

/** The output of a script that must succeed. */
export async function succeed(guest: Guest, script: string): Promise<string> {
  const result = await shell(guest, script)
  assert.equal(result.exitCode, 0, `${script}\n${result.stdout}${result.stderr}`)
  return result.stdout.trim()
}

/** The memory limit that a sandbox sees, in version 2 or 1 of control groups. */
export async function memoryLimitBytes(guest: Guest): Promise<number> {
  const root = '/sys/fs/cgroup'
  return Number(await succeed(guest, `cat ${root}/memory.max 2>/dev/null || cat ${root}/memory/memory.limit_in_bytes`))
}

/** Runs a Python program inside and returns what it prints. */
export async function python(guest: Guest, program: string): Promise<string> {
  return succeed(guest, `python3 - <<'PYTHON'\n${program}\nPYTHON`)
}

/** Starts a program that reads lines from standard input, and returns once it has printed one. */
export async function startProgram(guest: Guest, id: string, ...argv: [string, ...string[]]): Promise<void> {
  await guest.spawn({ id, argv, envs: { PATH: '/usr/bin:/bin' }, stdin: true })
  await outputOnce(guest, id, (stdout) => stdout.includes('\n'))
}

/** The standard output of a process, once it is `enough`. Throws what it has said on standard error when it ends before. */
export async function outputOnce(guest: Guest, id: string, enough: (stdout: string) => boolean): Promise<string> {
  for (;;) {
    const { running } = await guest.process(id)
    const { stdout, stderr } = await guest.output(id)
    if (enough(stdout.toString())) return stdout.toString()
    assert.ok(running, `process ${id} has ended: ${stderr.toString()}`)
  }
}

/** `startProgram` in Python. */
export function startPython(guest: Guest, id: string, program: string): Promise<void> {
  return startProgram(guest, id, '/usr/bin/python3', '-c', program)
}

/** Starts a shell that ignores SIGHUP and writes `/root/end` when SIGTERM ends it. */
export function startTidy(guest: Guest): Promise<void> {
  const script = `trap '' HUP; trap 'echo tidy > /root/end; exit' TERM; echo ready; while :; do sleep 0.1; done`
  return startProgram(guest, 'tidy', '/bin/bash', '-c', script)
}

/** Starts a server that counts its connections and answers each with that and what `answer()` of this Python program returns. */
export function startWitness(guest: Guest, program: string): Promise<void> {
  const server = `
import socket
server = socket.create_server(("127.0.0.1", 7000))
count = 0
print("ready", flush=True)
while True:
    peer = server.accept()[0]
    count += 1
    peer.sendall(b"%d %s" % (count, answer()))
    peer.close()`
  return startPython(guest, 'witness', `${program}\n${server}`)
}

/** What the witness answers. */
export function askWitness(guest: Guest): Promise<string> {
  return python(guest, 'import socket; print(socket.create_connection(("127.0.0.1", 7000)).recv(100).decode())')
}

/** Sends a line to the standard input of a process. */
export async function sendLine(guest: Guest, id: string, line = ''): Promise<void> {
  const attachment = await guest.attach(id)
  await attachment.write(Buffer.from(`${line}\n`))
  attachment.close()
}
