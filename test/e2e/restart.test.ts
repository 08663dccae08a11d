import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Host } from './host.ts'
import { AtollServer } from './server.ts'

interface Started {
  sandboxID: string
}

interface RunResult {
  exitCode: number
  stdout: string
}

async function count(server: AtollServer, sandboxId: string): Promise<number> {
  const result = (await server.json('POST', `/api/sandboxes/${sandboxId}/exec/run`, {
    cmd: 'cat /tmp/count',
  })) as RunResult
  return Number(result.stdout)
}

test('sandboxes outlive a stop and a crash of the server, and nothing of a deleted one is left on the host', async () => {
  let host: Host
  {
    await using server = await AtollServer.start()
    host = await Host.of(server)
    const { sandboxID: id } = (await server.json('POST', '/api/sandboxes', { timeout: 0 })) as Started
    const { sandboxID: doomed } = (await server.json('POST', '/api/sandboxes', { timeout: 0 })) as Started
    const loop =
      'n=0; while true; do n=$((n+1)); echo $n > /tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done'
    await server.json('POST', `/api/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', loop] })
    const checkpoint = (await server.json('POST', `/api/sandboxes/${id}/checkpoints`, {
      name: 'a',
      kind: 'disk_only',
    })) as {
      id: string
    }
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
      server.json('POST', `/api/sandboxes/from-checkpoint/${checkpoint.id}`, {}).catch(() => undefined),
    )
    const deletion = server.fetch(`/api/sandboxes/${doomed}`, { method: 'DELETE' }).catch(() => undefined)
    await sleep(150)
    await server.kill()
    await Promise.all([...starts, deletion])
    await server.restart()
    const list = (await server.json('GET', '/api/sandboxes')) as {
      sandboxID: string
      status: string
      reason?: string
    }[]
    for (const sandbox of list) {
      assert.ok(sandbox.status === 'running' || sandbox.reason !== undefined, JSON.stringify(sandbox))
    }
    assert.ok((await count(server, id)) > afterCrash)
    const running = list.filter((sandbox) => sandbox.status === 'running').map((sandbox) => sandbox.sandboxID)
    assert.deepEqual(await host.sandboxes(), running.toSorted())
    assert.ok((await host.leftovers()).some((line) => line.includes('atoll-hostd')))
    await server.json('DELETE', `/api/sandboxes/${id}/checkpoints/${checkpoint.id}`)
  }
  assert.deepEqual(await host.leftovers(), [])
})

test('two servers run side by side on one machine and see nothing of each other', async () => {
  await using first = await AtollServer.start()
  await using second = await AtollServer.start()
  const { sandboxID } = (await first.json('POST', '/api/sandboxes', {})) as Started
  assert.equal((await second.fetch(`/api/sandboxes/${sandboxID}`)).status, 404)
  const { sandboxID: other } = (await second.json('POST', '/api/sandboxes', {})) as Started
  await first.stop()
  assert.equal(
    ((await second.json('POST', `/api/sandboxes/${other}/exec/run`, { cmd: 'true' })) as RunResult).exitCode,
    0,
  )
  await first.restart()
  assert.equal(
    ((await first.json('POST', `/api/sandboxes/${sandboxID}/exec/run`, { cmd: 'true' })) as RunResult).exitCode,
    0,
  )
})

test('a second server on the same data directory refuses to start and says why', async () => {
  await using server = await AtollServer.start()
  await assert.rejects(AtollServer.start({ dataDir: server.dataDir }), /another server runs on the data directory/)
})
