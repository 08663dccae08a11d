import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { roundsOf } from '../../src/lib/testing/thorough.ts'
import type { SandboxExit } from '../../src/sandbox/ports/runtime-driver.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import type { DriverUnderTest } from './driver.ts'
import { create, driverTests, freshId, python, remove, sendLine, specOf, succeed } from './driver-shell.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const heldMb = 160
const limits = { memoryMb: 1024, cpuCount: 2 }
const mapped = { pieces: 2_000, processes: 3 }

const envs = { PATH: '/usr/bin:/bin' }

/** Holds random bytes, and says on each line that it reads whether they still are what they were. */
const holder = `
import hashlib, os, sys
held = bytearray(os.urandom(${heldMb} << 20))
digest = hashlib.sha256(held).hexdigest()
print("ready", flush=True)
for line in sys.stdin:
    print(line.strip(), "same" if hashlib.sha256(held).hexdigest() == digest else "different", flush=True)`

/**
 * As soon as it runs under another host name, it does with its memory at once what allocators do: gives it back in pieces,
 * by threads side by side, moves it, and forks children that compare what they have.
 */
const restless = `
import ctypes, hashlib, os, sys, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
piece, count = 16384, ${mapped.pieces}
held = bytearray(os.urandom(64 << 20))
digest = hashlib.sha256(held).hexdigest()
places = []
for index in range(count):
    place = libc.mmap(None, 2 * piece, 3, 0x22, -1, 0)
    ctypes.memset(place, index % 251 + 1, 2 * piece)
    places.append(place)
    libc.mmap(None, 4096, 0, 0x22, -1, 0)
faults = []
def work(indexes):
    for index in indexes:
        place = places[index]
        if index % 4 == 0:
            place = libc.mremap(place, 2 * piece, 4 * piece, 1)
            if ctypes.string_at(place, 4 * piece) != bytes([index % 251 + 1]) * (2 * piece) + bytes(2 * piece): faults.append(index)
            libc.munmap(place, 4 * piece)
            continue
        libc.madvise(place, piece, 4)
        if index % 4 == 1 and ctypes.string_at(place, 2 * piece) != bytes(piece) + bytes([index % 251 + 1]) * piece: faults.append(index)
        libc.munmap(place, 2 * piece)
def compare():
    os._exit(0 if hashlib.sha256(held).hexdigest() == digest else 1)
name = os.uname().nodename
print("ready", flush=True)
while os.uname().nodename == name: time.sleep(0.0005)
threads = [threading.Thread(target=work, args=(range(first, count, 4),)) for first in range(4)]
for thread in threads: thread.start()
children = [os.fork() or compare() for _ in range(${mapped.processes})]
for child in children:
    if os.waitpid(child, 0)[1] != 0: faults.append("child")
for thread in threads: thread.join()
if hashlib.sha256(held).hexdigest() != digest: faults.append("own")
print("done", faults, flush=True)`

/** Processes of the host, by sandbox. */
export interface LazyHost {
  /** What brings its memory; undefined when all is there. */
  daemonOf: (sandboxId: string) => Promise<number | undefined>
  firstProcessOf: (sandboxId: string) => Promise<number>
  isAlive: (pid: number) => Promise<boolean>
  /** From here on memory that its sandbox does not touch does not come; returns what ends that. */
  hold: () => Promise<() => Promise<void>>
}

/** What is special about memory that comes while the sandbox runs. */
export function lazyConformance(under: () => DriverUnderTest, host: LazyHost): void {
  const test = driverTests(under)
  const { daemonOf } = host
  const start = async (program: string): Promise<{ source: string; cp: string }> => {
    const { driver, guest } = under()
    const [source, cp] = [await create(driver, limits), freshId('cp')]
    await guest(source).spawn({ id: 'held', argv: ['/usr/bin/python3', '-c', program], envs, stdin: true })
    await eventually(async () => (await said(guest(source))).includes('ready'))
    await driver.checkpoint(source, cp, 'full')
    return { source, cp }
  }
  const forkOf = async (cp: string): Promise<string> => {
    const id = freshId('sb')
    await under().driver.create(specOf(id, { ...limits, from: { checkpointId: cp } }))
    return id
  }
  /** As `hold`, to the end of the test at the longest. */
  const holdMemory = async (context: TestContext): Promise<() => Promise<void>> => {
    const letCome = await host.hold()
    context.after(letCome)
    return letCome
  }
  /** The process that brings the memory of a sandbox; there must be one. */
  const comingTo = async (id: string): Promise<number> =>
    (await daemonOf(id)) ?? assert.fail('all of the memory is there already')
  const lazyForkOf = async (cp: string): Promise<{ id: string; daemon: number }> => {
    const id = await forkOf(cp)
    return { id, daemon: await comingTo(id) }
  }
  const wellDone = async (guest: DriverUnderTest['guest'], id: string): Promise<void> => {
    await eventually(async () => (await said(guest(id))).includes('done'))
    assert.match(await said(guest(id)), /done \[\]/)
    await under().driver.delete(id)
  }
  const wakeLazily = async (id: string): Promise<void> => {
    await under().driver.wake(specOf(id, limits))
    await comingTo(id)
  }

  test('lazy memory: forks of a removed checkpoint, and their forks, are complete', async (_, context) => {
    const { driver, guest, fixture } = under()
    const before = await fixture.trace()
    const { source, cp } = await start(holder)
    const letCome = await holdMemory(context)
    await driver.delete(source)
    const [{ id: first }, ...others] = await Promise.all([lazyForkOf(cp), lazyForkOf(cp), lazyForkOf(cp)])
    await driver.deleteCheckpoint(cp)
    const second = freshId('cp')
    const saved = driver.checkpoint(first, second, 'full')
    await letCome()
    await saved
    const child = await forkOf(second)
    await remove(driver, first, second)
    const left = [child, ...others.map(({ id }) => id)]
    await Promise.all(left.map((id) => sameMemory(guest(id))))
    await Promise.all(left.map((id) => driver.delete(id)))
    assert.deepEqual(await fixture.trace(), before)
  })

  test('lazy memory: wake, restore, hibernate and restart work before it is complete', async (_, context) => {
    const { driver, guest, fixture } = under()
    const before = await fixture.trace()
    const { source, cp } = await start(holder)
    await driver.hibernate(source)
    const letCome = await holdMemory(context)
    await wakeLazily(source)
    const asleep = driver.hibernate(source)
    await letCome()
    await asleep
    const letComeAgain = await holdMemory(context)
    await wakeLazily(source)
    const restored = driver.restore(specOf(source, limits), cp)
    await letComeAgain()
    await restored
    await sameMemory(guest(source))
    await holdMemory(context)
    await driver.restore(specOf(source, limits), cp)
    await comingTo(source)
    await driver.restart(specOf(source, limits))
    assert.equal(await daemonOf(source), undefined)
    assert.equal((await guest(source).processes()).length, 0)
    await remove(driver, source, cp)
    assert.deepEqual(await fixture.trace(), before)
  })

  test('lazy memory: a delete before it is complete leaves nothing', async ({ driver, fixture }, context) => {
    const { source, cp } = await start(holder)
    await holdMemory(context)
    const before = await fixture.trace()
    const forks = await Promise.all([lazyForkOf(cp), lazyForkOf(cp)])
    await Promise.all(forks.map(({ id }) => driver.delete(id)))
    assert.deepEqual(await fixture.trace(), before)
    await remove(driver, source, cp)
  })

  test('lazy memory: the sandbox ends with a reason when the daemon dies, with or without a server', async (_, context) => {
    const { driver, fixture, restart } = under()
    const before = await fixture.trace()
    const { source, cp } = await start(holder)
    await holdMemory(context)
    const exits: SandboxExit[] = []
    driver.onExit((exit) => exits.push(exit))
    const one = await lazyForkOf(cp)
    process.kill(one.daemon, 'SIGKILL')
    await eventually(() => Promise.resolve(exits.length > 0))
    assert.deepEqual(
      exits.map(({ sandboxId, reason }) => ({ sandboxId, reason })),
      [{ sandboxId: one.id, reason: 'runtime_failed' }],
    )
    assert.match(exits[0]?.message ?? '', /memory is incomplete/)
    const refused = (error: unknown) => isServiceError(error, 'conflict')
    await assert.rejects(driver.checkpoint(one.id, freshId('cp'), 'full'), refused)

    const two = await lazyForkOf(cp)
    const first = await host.firstProcessOf(two.id)
    await driver.close()
    process.kill(two.daemon, 'SIGKILL')
    await eventually(async () => !(await host.isAlive(first)))
    const ids = [source, one.id, two.id]
    assert.deepEqual((await restart({ sandboxIds: ids, checkpointIds: [cp] })).running, [source])
    await remove(under().driver, ...ids, cp)
    assert.deepEqual(await fixture.trace(), before)
  })

  test('lazy memory: a restarted server continues', async ({ driver, guest, fixture, restart }, context) => {
    const before = await fixture.trace()
    const { source, cp } = await start(holder)
    const letCome = await holdMemory(context)
    const { id, daemon } = await lazyForkOf(cp)
    await driver.deleteCheckpoint(cp)
    const { running } = await restart({ sandboxIds: [source, id] })
    assert.deepEqual(running.toSorted(), [source, id].toSorted())
    assert.equal(await comingTo(id), daemon)
    await letCome()
    await sameMemory(guest(id))
    await under().driver.hibernate(id)
    await under().driver.wake(specOf(id, limits))
    await sameMemory(guest(id))
    await remove(under().driver, source, id)
    assert.deepEqual(await fixture.trace(), before)
  })

  test('lazy memory: processes that free, move and fork before it is complete lose nothing', async () => {
    const { driver, guest } = under()
    const { source, cp } = await start(restless)
    for (let round = 0; round < roundsOf(2, 5); round += 1) await wellDone(guest, await forkOf(cp))
    await remove(driver, source, cp)
  })

  test('lazy memory: what they touch meanwhile comes at once, not with the rest', async (_, context) => {
    const { driver, guest } = under()
    const { source, cp } = await start(restless)
    await holdMemory(context)
    for (let round = 0; round < roundsOf(2, 5); round += 1) await wellDone(guest, await forkOf(cp))
    await remove(driver, source, cp)
  })

  test('lazy memory: restored processes hold no userfaultfd and can make none', async ({ driver, guest }, context) => {
    const { source, cp } = await start(holder)
    const letCome = await holdMemory(context)
    const { id } = await lazyForkOf(cp)
    await letCome()
    assert.equal(await succeed(guest(id), 'ls -l /proc/[0-9]*/fd | grep userfaultfd || echo none'), 'none')
    const number = process.arch === 'arm64' ? 282 : 323
    const told = await python(
      guest(id),
      `import ctypes; libc = ctypes.CDLL(None, use_errno=True); print(libc.syscall(${number}, 1), ctypes.get_errno())`,
    )
    assert.equal(told, '-1 1', 'EPERM, although the host allows it to users without privileges')
    await remove(driver, source, id, cp)
  })

  test('lazy memory: more than the limit is refused', async ({ driver, fixture }) => {
    const { source, cp } = await start(holder)
    const before = await fixture.trace()
    await refuses(create(driver, { memoryMb: heldMb / 2, from: { checkpointId: cp } }), 'conflict')
    assert.deepEqual(await fixture.trace(), before)
    await remove(driver, source, cp)
  })
}

async function said(guest: Guest): Promise<string> {
  const { stdout, stderr } = await guest.output('held')
  return `${stdout.toString()}${stderr.toString()}`
}

async function sameMemory(guest: Guest): Promise<void> {
  const mark = Math.random().toString(36).slice(2)
  await sendLine(guest, 'held', mark)
  await eventually(async () => (await said(guest)).includes(`${mark} `))
  assert.match(await said(guest), new RegExp(`${mark} same`))
}
