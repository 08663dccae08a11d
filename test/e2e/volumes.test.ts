import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Host } from './host.ts'
import { sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const path = '/data'

interface VolumeBody {
  name: string
  usedBytes?: number
  generation?: number
  mountedBy: { sandboxID: string; readOnly: boolean }[]
}

async function makeVolume(server: AtollServer, body: { name: string; from?: string }): Promise<string> {
  const { name } = (await server.json('POST', '/api/volumes', { sizeMB: 64, ...body })) as VolumeBody
  return name
}

const read = async (server: AtollServer, name: string) =>
  (await server.json('GET', `/api/volumes/${name}`)) as VolumeBody

const mounting = (name: string, readOnly = false) => ({ volumes: [{ name, path, readOnly }] })

/** The status of an answer, and what it says. */
async function answer(server: AtollServer, method: string, url: string, body?: object): Promise<[number, string]> {
  const response = await server.fetch(url, { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) })
  return [response.status, await response.text()]
}

async function remove(server: AtollServer, ...ids: string[]): Promise<void> {
  await Promise.all(ids.map((id) => server.json('DELETE', `/api/sandboxes/${id}`)))
}

test('volume: what a sandbox writes outlives it, its sleep and the server; it has one writer and many readers', async () => {
  await using server = await AtollServer.start()
  const name = await makeVolume(server, { name: 'shared' })
  const writer = await startSandbox(server, mounting(name))
  const log = `exec >>${path}/log; n=0; while read -r line; do n=$((n+1)); echo "$n $line"; done <>/tmp/pipe`
  await sh(server, writer, `mkfifo /tmp/pipe && (setsid bash -c '${log}' </dev/null &>/dev/null &)`)
  const logged = async (line: string, count: number) => {
    await sh(server, writer, `echo ${line} >/tmp/pipe; until [ $(wc -l <${path}/log) = ${count} ]; do sleep 0.02; done`)
  }
  await logged('one', 1)

  const reader = await startSandbox(server, mounting(name, true))
  assert.equal(
    await sh(server, reader, `cat ${path}/log; touch ${path}/x 2>/dev/null || echo refused`),
    '1 one\nrefused',
  )
  const [status, words] = await answer(server, 'POST', '/api/sandboxes', mounting(name))
  assert.deepEqual([status, words.includes(writer)], [409, true], words)
  const checkpoint = await takeCheckpoint(server, writer, 'of the writer')
  const fork = `/api/sandboxes/from-checkpoint/${checkpoint}`
  assert.equal((await answer(server, 'POST', fork, {}))[0], 409)

  await server.json('POST', `/api/sandboxes/${writer}/hibernate`)
  assert.equal((await answer(server, 'POST', '/api/sandboxes', mounting(name)))[0], 409, 'it sleeps')
  await server.kill()
  await server.restart()
  await logged('two', 2)
  assert.equal(await sh(server, reader, `cat ${path}/log`), '1 one\n2 two', 'the memory of the writer has come back')
  const ofReader = await takeCheckpoint(server, reader, 'of the reader')
  const forked = (await server.json('POST', `/api/sandboxes/from-checkpoint/${ofReader}`, {})) as { sandboxID: string }
  assert.equal(await sh(server, forked.sandboxID, `cat ${path}/log`), '1 one\n2 two')

  const clone = await makeVolume(server, { name: 'clone', from: name })
  const fresh = (await server.json('POST', fork, mounting(clone))) as { sandboxID: string }
  await sh(server, fresh.sandboxID, `echo clone >${path}/log`)
  assert.equal(await sh(server, writer, `cat ${path}/log`), '1 one\n2 two')

  const held = await answer(server, 'DELETE', `/api/volumes/${name}`)
  assert.deepEqual([held[0], held[1].includes(writer), held[1].includes(reader)], [409, true, true])
  await remove(server, writer)
  const next = await startSandbox(server, mounting(name))
  assert.equal(await sh(server, next, `cat ${path}/log; stat -c %u ${path}/log`), '1 one\n2 two\n0')
  await remove(server, next, reader, forked.sandboxID, fresh.sandboxID)
  for (const one of [name, clone]) await server.json('DELETE', `/api/volumes/${one}`)
  assert.deepEqual(await server.json('GET', '/api/volumes'), [])
})

test('volume: a full one harms nothing else, and a snapshot is of its moment', async () => {
  await using server = await AtollServer.start()
  const name = await makeVolume(server, { name: 'small' })
  const [one, other] = [await startSandbox(server, mounting(name)), await startSandbox(server)]
  await sh(server, one, `echo before >${path}/file`)
  await server.json('POST', `/api/volumes/${name}/snapshots`, { name: 'then' })
  const fill = `dd if=/dev/urandom of=${path}/big bs=1M count=100 conv=fsync 2>&1 | grep -c 'quota exceeded'`
  assert.equal(await sh(server, one, fill), '1')
  for (const id of [one, other])
    assert.equal(await sh(server, id, 'echo kept >/root/file && sync && cat /root/file'), 'kept')
  const { usedBytes = 0 } = await read(server, name)
  assert.ok(usedBytes > 32 * 1024 ** 2 && usedBytes <= 64 * 1024 ** 2, String(usedBytes))
  await makeVolume(server, { name: 'back', from: `${name}@then` })
  const back = await startSandbox(server, mounting('back'))
  assert.equal(await sh(server, back, `ls ${path}; cat ${path}/file`), 'file\nbefore')
  await remove(server, one, other, back)
})

test('volume: a server killed among creations and deletions keeps what it has acknowledged, and loses nothing else', async () => {
  let host: Host
  {
    await using server = await AtollServer.start()
    host = await Host.of(server)
    const name = await makeVolume(server, { name: 'kept' })
    const first = await startSandbox(server, mounting(name))
    await sh(server, first, `echo kept >${path}/file && sync`)
    await server.json('POST', `/api/volumes/${name}/snapshots`, { name: 'then' })
    for (const pauseMs of [5, 25, 60, 120]) {
      const reader = await startSandbox(server, mounting(name, true))
      const fates = [
        ...Array.from({ length: 4 }, (_, index) =>
          answer(server, 'POST', '/api/volumes', { name: `v-${pauseMs}-${index}`, sizeMB: 64, from: `${name}@then` }),
        ),
        answer(server, 'DELETE', `/api/sandboxes/${reader}`),
        answer(server, 'POST', '/api/sandboxes', mounting(name, true)),
      ].map((fate) => fate.catch(() => undefined))
      await sleep(pauseMs)
      await server.kill()
      const acknowledged = (await Promise.all(fates.slice(0, 4))).map((fate) => fate?.[0] === 201)
      await server.restart()
      const listed = ((await server.json('GET', '/api/volumes')) as VolumeBody[]).map((volume) => volume.name)
      for (const [index, isMade] of acknowledged.entries()) {
        if (isMade) assert.ok(listed.includes(`v-${pauseMs}-${index}`))
      }
      for (const volume of listed)
        assert.ok((await read(server, volume)).generation !== undefined, `${volume} has data`)
      assert.equal(await sh(server, first, `cat ${path}/file`), 'kept')
      const { mountedBy } = await read(server, name)
      const sandboxes = (await server.json('GET', '/api/sandboxes')) as { sandboxID: string }[]
      const ids = sandboxes.map(({ sandboxID }) => sandboxID)
      assert.deepEqual(mountedBy.map(({ sandboxID }) => sandboxID).toSorted(), ids.toSorted(), 'deleted ones let go')
      await remove(server, ...ids.filter((id) => id !== first))
    }
    await remove(server, first)
    await server.json('DELETE', `/api/volumes/${name}/snapshots/then`)
    for (const volume of (await server.json('GET', '/api/volumes')) as VolumeBody[]) {
      await server.json('DELETE', `/api/volumes/${volume.name}`)
    }
  }
  assert.deepEqual(await host.leftovers(), [])
})
