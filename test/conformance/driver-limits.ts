import assert from 'node:assert/strict'
import type { DriverUnderTest } from './driver.ts'
import { create, driverTests, freshId, python, remove, shell, succeed } from './driver-shell.ts'

const sigkillExit = 137
/** Python functions that take of one thing as much as they get, up to more than a share, and tell how much that was. */
const taking = `
import ctypes, os, platform, time
libc = ctypes.CDLL(None, use_errno=True)
io_setup, timer_create, mq_open, mq_unlink = {
    "x86_64": (206, 222, 240, 241), "aarch64": (0, 107, 180, 181)
}[platform.machine()]
def until_refused(take, most):
    for count in range(most):
        if take(count) < 0: return count
    return most
def terminal(count):
    try: return os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    except OSError: return -1
def terminals(): return until_refused(terminal, 2000)
def asynchronous():
    return until_refused(lambda count: libc.syscall(io_setup, 1, ctypes.byref(ctypes.c_ulong(0))), 8)
def timers(): return until_refused(lambda count: libc.syscall(timer_create, 0, None, ctypes.byref(ctypes.c_int(0))), 6000)
def queues():
    made = until_refused(lambda count: libc.syscall(mq_open, b"queue%d" % count, 0o102, 0o600, None), 8)
    for count in range(made): libc.syscall(mq_unlink, b"queue%d" % count)
    return made
`

export function limitConformance(under: () => DriverUnderTest): void {
  const test = driverTests(under)

  test('disk limit: a full disk is an error inside and leaves others alone; removals free it', async () => {
    const { driver, guest } = under()
    const [full, other] = await Promise.all([create(driver, { diskMb: 64 }), create(driver, { diskMb: 128 })])
    const result = await shell(guest(full), 'dd if=/dev/urandom of=/root/big bs=1M count=100 conv=fsync')
    assert.notEqual(result.exitCode, 0)
    assert.match(result.stderr, /No space left|quota exceeded/)
    assert.ok(Number(await succeed(guest(full), 'stat -c %s /root/big')) <= 64 * 1024 * 1024)
    await succeed(guest(other), 'dd if=/dev/urandom of=/root/big bs=1M count=80 conv=fsync')
    await succeed(guest(full), 'rm /root/big; sync; echo small > /root/small; cat /root/small')
    await remove(driver, full, other)
  })

  test('disk limit: holds for the folder of the guest socket', async ({ driver, guest, fixture }) => {
    const id = await create(driver)
    await fixture.giveSocketFolder(id)
    assert.notEqual((await shell(guest(id), 'dd if=/dev/zero of=/.atoll/run/big bs=1M count=2')).exitCode, 0)
    await succeed(guest(id), 'rm /.atoll/run/big')
    await driver.delete(id)
  })

  test('memory limit: a process above it is killed; all sandboxes go on', async ({ driver, guest }) => {
    const [hungry, other] = await Promise.all([create(driver, { memoryMb: 128 }), create(driver)])
    for (const id of [hungry, other]) await guest(id).spawn({ id: 'bystander', argv: ['/bin/sleep', '1000'], envs: {} })
    const hog = await shell(guest(hungry), `exec python3 -c 'b = [bytearray(1 << 20) for _ in range(1024)]'`)
    assert.equal(hog.exitCode, sigkillExit)
    for (const id of [hungry, other]) assert.equal((await guest(id).process('bystander')).running, true)
    await remove(driver, hungry, other)
  })

  test('output: alternating writes to both streams lose nothing below the retained bytes', async () => {
    const { driver, guest } = under()
    const id = await create(driver)
    // The pauses let the guest read each line by itself: 40 000 pieces, and far less than 1 MiB.
    const program = `
import os, time
for number in range(20000):
    for stream in (1, 2):
        os.write(stream, b'%d\\n' % number)
        time.sleep(0.00002)`
    await guest(id).spawn({ id: 'turns', argv: ['/usr/bin/python3', '-c', program], envs: {} })
    const whole = Array.from({ length: 20_000 }, (_, number) => `${number}\n`).join('')
    const followed = { stdout: '', stderr: '' }
    let reached = 0
    for await (const event of await guest(id).attach('turns')) {
      if (event.type !== 'output') continue
      assert.equal(event.offset, reached)
      reached += event.data.length
      followed[event.stream] += event.data.toString()
    }
    assert.deepEqual(followed, { stdout: whole, stderr: whole })
    const { stdout, stderr, truncated } = await guest(id).output('turns')
    assert.deepEqual([stdout.toString(), stderr.toString(), truncated], [whole, whole, false])
    const replayed = { stdout: '', stderr: '' }
    for await (const event of await guest(id).attach('turns')) {
      if (event.type === 'output') replayed[event.stream] += event.data.toString()
    }
    assert.deepEqual(replayed, followed)
    await driver.delete(id)
  })

  test('process limit: counts threads and leaves other sandboxes alone', async ({ driver, guest }) => {
    const [bomb, other] = await Promise.all([create(driver, { memoryMb: 512 }), create(driver)])
    const made = await python(
      guest(bomb),
      `
import threading
threading.stack_size(65536)
end = threading.Event()
made = 0
try:
    while made < 20000:
        threading.Thread(target=end.wait).start()
        made += 1
except RuntimeError:
    pass
end.set()
print(made)`,
    )
    assert.ok(Number(made) > 100 && Number(made) < 5000, made)
    assert.equal(await succeed(guest(other), 'echo fine'), 'fine')
    await remove(driver, bomb, other)
  })

  test('shared kernel limits: one sandbox does not use them up', async ({ driver, guest }) => {
    const cp = freshId('cp')
    const [greedy, other] = await Promise.all([create(driver), create(driver)])
    const hold = `${taking}\nopen("/root/held", "w").write(f"{terminals()}\\n")\ntime.sleep(1000)`
    await guest(greedy).spawn({ id: 'holder', argv: ['/usr/bin/python3', '-c', hold], envs: {} })
    await succeed(guest(greedy), 'until test -s /root/held; do sleep 0.02; done')
    const held = Number(await succeed(guest(greedy), 'cat /root/held'))
    assert.ok(held >= 64 && held <= 256, String(held))
    // One more, asked for through the service, is told what there is.
    const pty = { cols: 80, rows: 24 }
    await assert.rejects(guest(greedy).spawn({ id: 'one-more', argv: ['true'], envs: {}, pty }), {
      code: 'unavailable',
      message: /pty: no terminal is free, \d+ are open in this sandbox/,
    })
    const terminal = await python(guest(other), 'import os\nprint(os.ttyname(os.openpty()[1]))')
    assert.match(terminal, /^\/dev\/pts\/\d+$/)
    await guest(greedy).signal('holder', 9)

    const shares = `${taking}\nprint(terminals(), asynchronous(), timers(), queues())`
    const own = await python(guest(other), shares)
    const [terminals, asynchronous, timers, queues] = own.split(' ').map(Number)
    assert.equal(terminals, held)
    assert.equal(asynchronous, 0)
    assert.ok(Number(timers) >= 1024 && Number(timers) <= 4096, own)
    assert.ok(Number(queues) >= 1 && Number(queues) <= 2, own)
    if (driver.capabilities.fullCheckpoints) {
      await driver.checkpoint(other, cp, 'full')
      const fork = await create(driver, { from: { checkpointId: cp } })
      await driver.deleteCheckpoint(cp)
      assert.equal(await python(guest(fork), shares), own)
      await driver.delete(fork)
    }
    await remove(driver, greedy, other)
  })
}
