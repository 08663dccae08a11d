import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { DriverUnderTest } from './driver.ts'
import { count, createLoaded } from './driver-memory-load.ts'
import { create, freshId, memoryTests, sendLine, specOf, startPython } from './driver-shell.ts'

/** What was sent to a sandbox that slept is sent again after pauses that have grown. */
const goesOnWaitMs = 180_000
const serverPort = 8_000

/** What becomes of connections to the outside while a sandbox hibernates with its memory. */
export function connectionConformance(under: () => DriverUnderTest): void {
  const memoryTest = memoryTests(under)

  memoryTest('wake: outside connections continue, abandoned ones are reset, servers listen', async () => {
    const { driver, guest } = under()
    const { listenHost, listenPort, insideHost } = driver.gateway()
    const peers = new Map<string, Socket>()
    const heard: string[] = []
    const outside = createServer((peer) => {
      peer.on('error', () => undefined)
      peer.on('data', (data) => {
        const word = data.toString()
        if (peers.has(word) || peers.size === 2) heard.push(word)
        else peers.set(word, peer)
      })
    })
    outside.listen(listenPort, listenHost)
    outside.unref()
    await once(outside, 'listening')
    const id = await createLoaded(under())
    const program = `
import socket
kept = socket.create_connection(("${insideHost}", ${listenPort})); kept.sendall(b"kept")
lost = socket.create_connection(("${insideHost}", ${listenPort})); lost.sendall(b"lost")
server = socket.create_server(("0.0.0.0", ${serverPort}))
print("ready", flush=True)
input()
kept.settimeout(150); lost.settimeout(150)
print("kept", kept.recv(100).decode(), flush=True)
kept.sendall(b"awake")
try:
    lost.sendall(b"awake"); print("lost", lost.recv(1), flush=True)
except OSError as error:
    print("lost", error.strerror, flush=True)`
    await startPython(guest(id), 'net', program)
    while (peers.size < 2) await sleep(10)

    await driver.hibernate(id)
    peers.get('kept')?.write('while it slept')
    peers.get('lost')?.resetAndDestroy()
    await driver.wake(specOf(id))

    assert.equal(await count(guest(id)), 2)
    assert.ok((await guest(id).ports()).includes(serverPort))
    await sendLine(guest(id), 'net')
    await guest(id).process('net', goesOnWaitMs)
    const { stdout } = await guest(id).output('net')
    assert.match(stdout.toString(), /kept while it slept\nlost Connection reset by peer/)
    while (heard.length === 0) await sleep(10)
    assert.deepEqual(heard, ['awake'])
    await driver.delete(id)
    for (const peer of peers.values()) peer.destroy()
    await new Promise((resolve) => outside.close(resolve))
  })

  memoryTest('dump: works while much is on its way to a server that reads nothing', async ({ driver, guest }) => {
    const id = await create(driver)
    const program = `
import socket
server = socket.create_server(("127.0.0.1", ${serverPort}))
kept = []
while True: kept.append(server.accept())`
    await guest(id).spawn({ id: 'silent', argv: ['/usr/bin/python3', '-c', program], envs: {} })
    while (!(await guest(id).ports()).includes(serverPort)) await sleep(10)
    for (const checkpoint of [freshId('cp'), freshId('cp')]) {
      const tunnel = await guest(id).dial(serverPort)
      tunnel.on('error', () => undefined)
      tunnel.once('freeze', () => tunnel.destroy())
      tunnel.write(Buffer.alloc(16 * 1024 * 1024))
      await driver.checkpoint(id, checkpoint, 'full')
      await driver.deleteCheckpoint(checkpoint)
    }
    await driver.delete(id)
  })
}
