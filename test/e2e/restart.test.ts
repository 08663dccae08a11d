import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Host } from './host.ts'
import { sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const count = async (server: AtollServer, sandboxId: string) => Number(await sh(server, sandboxId, 'cat /tmp/count'))

test('server: sandboxes survive its stop and its crash, and nothing of a deleted one is left on the host', async () => {
  let host: Host
  {
    await using server = await AtollServer.start()
    host = await Host.of(server)
    const id = await startSandbox(server)
    const doomed = await startSandbox(server)
    const loop =
      'n=0; while true; do n=$((n+1)); echo $n > /tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done'
    await server.json('POST', `/api/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', loop] })
    const checkpointId = await takeCheckpoint(server, id, 'a', 'disk_only')
    await sleep(300)

    assert.equal(await server.stop(), 0)
    await server.restart()
    const afterStop = await count(server, id)
    assert.ok(afterStop > 0)

    await server.kill()
    await server.restart()
    const afterCrash = await count(server, id)
    assert.ok(afterCrash > afterStop, 'the same process went on counting')

    // A crash in the middle of starts and deletions: whatever was acknowledged holds, the rest is gone or has a reason.
    const starts = Array.from({ length: 6 }, () =>
      server.json('POST', `/api/sandboxes/from-checkpoint/${checkpointId}`, {}).catch(() => undefined),
    )
    const deletion = server.fetch(`/api/sandboxes/${doomed}`, { method: 'DELETE' }).catch(() => undefined)
    await sleep(150)
    await server.kill()
    await Promise.all([...starts, deletion])
    await server.restart()
    const list = (await server.json('GET', '/api/sandboxes')) as Record<'sandboxID' | 'status' | 'reason', string>[]
    for (const sandbox of list) {
      assert.ok(sandbox.status === 'running' || 'reason' in sandbox, JSON.stringify(sandbox))
    }
    assert.ok((await count(server, id)) > afterCrash)
    const running = list.filter((sandbox) => sandbox.status === 'running').map((sandbox) => sandbox.sandboxID)
    assert.deepEqual(await host.sandboxes(), running.toSorted())
    assert.ok((await host.leftovers()).some((line) => line.includes('atoll-hostd')))
    await server.json('DELETE', `/api/sandboxes/${id}/checkpoints/${checkpointId}`)
  }
  assert.deepEqual(await host.leftovers(), [])
})

test('server: two run side by side on one machine and see nothing of each other; a data directory has one', async () => {
  await using first = await AtollServer.start()
  await using second = await AtollServer.start()
  const sandboxId = await startSandbox(first)
  assert.equal((await second.fetch(`/api/sandboxes/${sandboxId}`)).status, 404)
  const other = await startSandbox(second)
  const { dataDir } = second
  await assert.rejects(AtollServer.start({ dataDir }), /another server runs on the data directory/)
  await first.stop()
  assert.equal(await sh(second, other, 'echo here'), 'here')
  await first.restart()
  assert.equal(await sh(first, sandboxId, 'echo here'), 'here')
})
