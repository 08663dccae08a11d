/** What becomes of connections into a sandbox when its memory is about to be saved. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { PreviewWorld } from '../support/preview-world.ts'

let preview: PreviewWorld

before(async () => {
  preview = await PreviewWorld.start()
})

after(() => preview[Symbol.asyncDispose]())

test('preview freeze: idle connections give way to a freeze at once; requests under way finish and are not kept', async () => {
  await preview.watchingDials(async (dialled) => {
    const held: ServerResponse[] = []
    preview.answers['/slow'] = (_request, response) => void held.push(response)
    preview.inside.closeIdleConnections()
    await preview.ask('/a')
    const idle = dialled.at(-1)
    assert.ok(idle && !idle.destroyed, 'it is kept')
    idle.emit('freeze', 'checkpoint')
    assert.ok(idle.destroyed)

    const slow = preview.ask('/slow')
    while (held.length === 0) await sleep(5)
    const used = dialled.at(-1)
    used?.emit('freeze', 'hibernate')
    assert.equal(used?.destroyed, false)
    held[0]?.end('slow but whole')
    assert.equal((await slow).text, 'slow but whole')
    if (used && !used.destroyed) await once(used, 'close')
  })
})

test('preview freeze: a request that is cut for a checkpoint is asked again where that does no harm; after a hibernation it is not', async () => {
  await preview.watchingDials(async (dialled) => {
    const hanging = { asked: 0 }
    preview.answers['/hangs'] = (_request, response) => {
      hanging.asked++
      if (hanging.asked === 2) response.end('second time')
    }
    const cut = async (method: string, reason: string) => {
      hanging.asked = 0
      // A kept one that dies under a POST is no failure of ours, and not what is meant here.
      preview.inside.closeIdleConnections()
      while (dialled.some((connection) => !connection.destroyed)) await sleep(5)
      const answer = preview.ask('/hangs', { method, ...(method === 'POST' ? { payload: 'x' } : {}) })
      while (hanging.asked < 1) await sleep(5)
      const used = dialled.at(-1)
      used?.emit('freeze', reason)
      used?.destroy()
      return await answer
    }
    assert.deepEqual([(await cut('GET', 'checkpoint')).text, hanging.asked], ['second time', 2])
    assert.deepEqual([(await cut('POST', 'checkpoint')).status, hanging.asked], [502, 1])
    assert.deepEqual([(await cut('GET', 'hibernate')).status, hanging.asked], [502, 1])
  })
})

test('preview freeze: a WebSocket is closed with 1012 before a freeze, between two frames, so that its client comes back', async () => {
  await preview.watchingDials(async (dialled) => {
    const open = async () => {
      const socket = preview.webSocket()
      await once(socket, 'open')
      return socket
    }
    const socket = await open()
    const large = Buffer.alloc(3_000_000, 'w')
    let isWhole = false
    socket.on('message', (data: Buffer) => {
      isWhole = large.equals(data)
    })
    const used = dialled.at(-1)
    assert.ok(used)
    socket.send(large)
    // In the middle of the frame that comes back.
    await once(used, 'data')
    used.emit('freeze', 'checkpoint')
    assert.deepEqual([(await once(socket, 'close'))[0], isWhole], [1012, true])
    assert.ok(used.destroyed)

    const quiet = await open()
    dialled.at(-1)?.emit('freeze', 'hibernate')
    assert.equal((await once(quiet, 'close'))[0], 1012)
    const again = await open()
    again.send('text')
    assert.equal(String((await once(again, 'message'))[0]), 'text')
    again.terminate()
  })
})
