import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Namespace, Outside } from './network-world.ts'
import { NetworkWorld, run } from './network-world.ts'

const port = 8_079
/** So few that programs which take long to start and to send get no more than they send. */
const bytesPerSecond = 64 * 1024
const sentBytes = 4 * 1024 * 1024

/** Tells for each line of its input how many bytes have come over UDP since the line before. */
function counting(address: string): string {
  return `
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
s.bind(("${address}", ${port}))
s.setblocking(False)
print("counts")
for _ in sys.stdin:
    total = 0
    try:
        while True: total += len(s.recv(65536))
    except BlockingIOError: pass
    print(total)`
}

async function send(from: Namespace, to: Outside): Promise<void> {
  await from.python(`
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(${sentBytes} // 1024): s.sendto(b"x" * 1024, ("${to.address}", ${port}))`)
}

test('network limits: sandboxes of a group have a rate together, which others do not share, and it outlasts the rules', async () => {
  await using world = await NetworkWorld.openWithOutside()
  const counter = await world.outside.start(counting(world.outside.address))
  const sandboxes = await Promise.all([1, 2, 3].map((slot) => world.sandbox(slot)))
  const [one, two, other] = sandboxes
  assert.ok(one && two && other)
  const limit = { group: 'org_one', bytesPerSecond }
  await world.network.limit(
    new Map([
      [1, limit],
      [2, limit],
    ]),
  )
  const received = async (...senders: Namespace[]) => {
    await Promise.all(senders.map((sender) => send(sender, world.outside)))
    return Number(await counter.ask('how many'))
  }
  const free = await received(other)
  assert.ok(free > sentBytes / 2, `${free} of one without a limit`)
  // The bucket, and what returns to it while two programs start and send.
  const limited = await received(one, two)
  assert.ok(limited > 0 && limited < sentBytes, `${limited} of two that send ${2 * sentBytes}`)

  await run('nft', ['delete', 'table', 'inet', `atoll_${world.hash}`])
  await world.network.tendRules()
  assert.ok((await received(one, two)) < sentBytes, 'the limit is there with the rules')

  await world.network.limit(new Map())
  assert.ok((await received(one)) > sentBytes / 2, 'the limit has ended')
  const { stdout } = await run('nft', ['list', 'table', 'inet', `atoll_${world.hash}`])
  assert.ok(!/group_\d/.test(stdout), stdout)
})
