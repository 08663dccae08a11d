/** A root in a sandbox that answers in the place of the guest, with more than bytes. */
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { RuntimeDriver } from '../../src/sandbox/driver.ts'
import type { Guest } from '../../src/sandbox/guest.ts'
import { knowing } from './driver-known.ts'
import { eventually, makeRuncFixture } from './driver-runc-host.ts'
import type { RuncFixture } from './driver-runc-host.ts'
import { freshId, shell, specOf, succeed } from './driver-shell.ts'

/** Longer than all else in a test takes, however slow the machine. */
const lingerSeconds = 60

/**
 * Takes the guest's place and answers each connection with a TCP socket that has unsent data: whoever closes it last waits for
 * `lingerSeconds` (SO_LINGER of socket(7)).
 */
const usurper = `
import os, socket, struct
path = "/.atoll/run/guest.sock"
os.unlink(path)
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen(64)
answers = open("/root/answers", "w", buffering=1)
print("listens", file=answers)
kept = []
while True:
    client, _ = server.accept()
    kept.append(client)
    sink = socket.create_server(("127.0.0.1", 0))
    source = socket.create_connection(sink.getsockname())
    kept.append(sink.accept()[0])
    source.setblocking(False)
    try:
        while True: source.send(bytes(65536))
    except BlockingIOError: pass
    source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, ${lingerSeconds}))
    try:
        socket.send_fds(client, [b"x"], [source.fileno()])
        print("sent", file=answers)
    except PermissionError:
        print("refused", file=answers)
        source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        client.close()
    source.close()`

describe('a hostile guest', () => {
  let fixture: RuncFixture
  let driver: RuntimeDriver
  const guest = (id: string): Guest => fixture.guest(driver, id)

  before(async () => {
    fixture = await makeRuncFixture()
    driver = fixture.makeDriver()
    await driver.open(await knowing(fixture))
  })

  after(async () => {
    await driver.close()
    await fixture.dispose()
  })

  test('the guest’s socket cannot be replaced from inside', async () => {
    const id = freshId('sb')
    await driver.create(specOf(id))
    for (const attempt of [
      'rm -f guest.sock',
      'mv guest.sock other.sock',
      'touch file',
      'ln -s / link',
      'chmod 777 .',
    ]) {
      assert.notEqual((await shell(guest(id), `cd /.atoll/run && ${attempt}`)).exitCode, 0, attempt)
    }
    await driver.delete(id)
  })

  test('a descriptor that a guest sends holds up nobody, whatever its close waits for', async () => {
    const [hostile, other] = [freshId('sb'), freshId('sb')]
    await Promise.all([driver.create(specOf(hostile)), driver.create(specOf(other))])
    await fixture.giveSocketFolder(hostile)
    await guest(hostile).spawn({ id: 'usurper', argv: ['/usr/bin/python3', '-c', usurper], envs: {} })
    const file = `${fixture.names.poolDir}/sandboxes/${hostile}/upper/root/answers`
    const answers = async () => (await readFile(file, 'utf8').catch(() => '')).split('\n').slice(0, -1)
    assert.ok(await eventually(async () => (await answers()).length > 0))

    const over = sleep(lingerSeconds * 1_000, 'too late', { ref: false })
    const attack = Array.from({ length: 8 }, () =>
      guest(hostile)
        .hello(AbortSignal.timeout(500))
        .catch(() => undefined),
    )
    const work = async () => {
      await Promise.all(attack)
      for (let round = 0; round < 3; round += 1) await succeed(guest(other), 'true')
      return 'in time'
    }
    assert.equal(await Promise.race([work(), over]), 'in time')
    const [, ...made] = await answers()
    assert.equal(made.length, attack.length)
    assert.ok(made.every((answer) => answer === 'sent' || answer === 'refused'))
    await driver.delete(hostile)
    await driver.delete(other)
  })
})
