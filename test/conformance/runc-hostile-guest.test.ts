/** A root in a sandbox that answers in the place of the guest, with more than bytes. */
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { useRunc } from './driver-runc-host.ts'
import { create, remove, shell, succeed } from './driver-shell.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

/** Longer than all else in a test takes, however slow the machine. */
const lingerSeconds = 60

/**
 * Takes the guest's place and answers each connection with more than anybody takes, and behind that a TCP socket with unsent
 * data: whoever closes it last waits for `lingerSeconds` (SO_LINGER of socket(7)). That is never this program, which has closed
 * it before anybody gets so far.
 */
const usurper = `
import os, socket, struct, threading, time
path = "/.atoll/run/guest.sock"
os.unlink(path)
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen(64)
answers = open("/root/answers", "w", buffering=1)
print("listens", file=answers)
kept = []

def fill(sender):
    sender.setblocking(False)
    refusals = 0
    while refusals < 5:
        try:
            sender.send(bytes(65536))
            refusals = 0
        except BlockingIOError:
            refusals += 1
            time.sleep(0.02)

def lingering():
    sink = socket.create_server(("127.0.0.1", 0))
    source = socket.create_connection(sink.getsockname())
    kept.append(sink.accept()[0])
    fill(source)
    source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, ${lingerSeconds}))
    return source

def answer(client):
    kept.append(client)
    fill(client)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    source = lingering()
    try:
        socket.send_fds(client, [b"x"], [source.fileno()])
        source.close()
        print("sent", file=answers)
    except PermissionError:
        source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        source.close()
        print("refused", file=answers)

while True:
    threading.Thread(target=answer, args=(server.accept()[0],)).start()`

describe('a hostile guest', () => {
  const runc = useRunc()
  const { guest } = runc

  test('guest socket: cannot be replaced from inside', async () => {
    const id = await create(runc.driver)
    const attempts = ['rm -f guest.sock', 'mv guest.sock other.sock', 'touch file', 'ln -s / link', 'chmod 777 .']
    for (const attempt of attempts) {
      assert.notEqual((await shell(guest(id), `cd /.atoll/run && ${attempt}`)).exitCode, 0, attempt)
    }
    await runc.driver.delete(id)
  })

  test('guest socket: a descriptor that a guest sends blocks no other work', async () => {
    const [hostile, other] = await Promise.all([create(runc.driver), create(runc.driver)])
    await runc.fixture.giveSocketFolder(hostile)
    await guest(hostile).spawn({ id: 'usurper', argv: ['/usr/bin/python3', '-c', usurper], envs: {} })
    const file = `${runc.fixture.names.poolDir}/sandboxes/${hostile}/upper/root/answers`
    const answers = async () => (await readFile(file, 'utf8').catch(() => '')).split('\n').slice(0, -1)
    await eventually(async () => (await answers()).length > 0)

    const connections = await Promise.all(Array.from({ length: 8 }, () => runc.driver.dial(hostile)))
    for (const connection of connections) connection.on('error', () => undefined)
    await eventually(async () => (await answers()).length > connections.length)
    const [, ...made] = await answers()
    assert.ok(made.every((answer) => answer === 'sent' || answer === 'refused'))

    const over = sleep(lingerSeconds * 1_000, 'too late', { ref: false })
    for (const connection of connections) connection.resume()
    const work = async () => {
      for (let round = 0; round < 5; round += 1) await succeed(guest(other), 'true')
      return 'in time'
    }
    assert.equal(await Promise.race([work(), over]), 'in time')
    for (const connection of connections) connection.destroy()
    await remove(runc.driver, hostile, other)
  })
})
