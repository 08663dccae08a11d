import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { DriverUnderTest } from './driver.ts'
import { freshId, python, shell, specOf, succeed } from './driver-shell.ts'

const sigkillExit = 137

export function limitConformance(under: () => DriverUnderTest): void {
  test('a full disk is an error inside, is freed again by removing files, and is nobody else’s', async () => {
    const { driver, guest } = under()
    const [full, other] = [freshId('sb'), freshId('sb')]
    await Promise.all([driver.create(specOf(full, { diskMb: 64 })), driver.create(specOf(other, { diskMb: 128 }))])
    const result = await shell(guest(full), 'dd if=/dev/urandom of=/root/big bs=1M count=100 conv=fsync')
    assert.notEqual(result.exitCode, 0)
    assert.match(result.stderr, /No space left|quota exceeded/)
    assert.ok(Number(await succeed(guest(full), 'stat -c %s /root/big')) <= 64 * 1024 * 1024)
    await succeed(guest(other), 'dd if=/dev/urandom of=/root/big bs=1M count=80 conv=fsync')
    await succeed(guest(full), 'rm /root/big; sync; echo small > /root/small; cat /root/small')
    for (const id of [full, other]) await driver.delete(id)
  })

  test('the folder of the guest’s socket is no way around the disk limit', async () => {
    const { driver, guest } = under()
    const id = freshId('sb')
    await driver.create(specOf(id))
    assert.notEqual((await shell(guest(id), 'dd if=/dev/zero of=/.atoll/run/big bs=1M count=2')).exitCode, 0)
    await succeed(guest(id), 'rm /.atoll/run/big')
    await driver.delete(id)
  })

  test('a process that takes too much memory is killed; its sandbox and the others go on', async () => {
    const { driver, guest } = under()
    const [hungry, other] = [freshId('sb'), freshId('sb')]
    await Promise.all([driver.create(specOf(hungry, { memoryMb: 128 })), driver.create(specOf(other))])
    for (const id of [hungry, other]) await guest(id).spawn({ id: 'bystander', argv: ['/bin/sleep', '1000'], envs: {} })
    const hog = await shell(guest(hungry), `exec python3 -c 'b = [bytearray(1 << 20) for _ in range(1024)]'`)
    assert.equal(hog.exitCode, sigkillExit)
    for (const id of [hungry, other]) assert.equal((await guest(id).process('bystander')).running, true)
    for (const id of [hungry, other]) await driver.delete(id)
  })

  test('a program that writes in turns to both streams loses nothing below the bytes that are kept', async () => {
    const { driver, guest } = under()
    const id = freshId('sb')
    await driver.create(specOf(id))
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

  test('processes and threads are counted, and a sandbox that has no more of them leaves the others alone', async () => {
    const { driver, guest } = under()
    const [bomb, other] = [freshId('sb'), freshId('sb')]
    await Promise.all([driver.create(specOf(bomb, { memoryMb: 512 })), driver.create(specOf(other))])
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
    for (const id of [bomb, other]) await driver.delete(id)
  })
}
