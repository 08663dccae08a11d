import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UploadQueue } from './upload-queue.ts'

const place = { path: '/w/x' }
const fileOf = (name: string, bytes = 1) => ({ parts: [name], place, file: new File([new Uint8Array(bytes)], name) })

test('upload queue: three at a time, each ends for itself, and what waits can be cancelled', async () => {
  const sending = new Map<string, PromiseWithResolvers<void>>()
  const sent: string[] = []
  const queue = new UploadQueue(
    async ({ parts: [name = ''] }, { signal }) => {
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      sending.set(name, { promise, resolve, reject })
      signal.addEventListener('abort', () => reject(signal.reason))
      await promise
    },
    ({ parts: [name = ''] }) => sent.push(name),
  )
  const drawn = () =>
    new Promise<void>((resolve) => {
      const stop = queue.subscribe(() => (stop(), resolve()))
    })
  queue.add(['a', 'b', 'c', 'd', 'e'].map((name) => fileOf(name)))
  assert.deepEqual([...sending.keys()], ['a', 'b', 'c'])
  sending.get('a')?.resolve()
  sending.get('b')?.reject(new Error('no'))
  await drawn()
  assert.deepEqual([...sending.keys()], ['a', 'b', 'c', 'd', 'e'])
  queue.cancelAll()
  await drawn()
  const { uploads, isBusy } = queue.view()
  assert.deepEqual(
    uploads.map(({ state }) => state),
    ['sent', 'failed', 'cancelled', 'cancelled', 'cancelled'],
  )
  assert.deepEqual([isBusy, sent], [false, ['a']])
  queue.clear()
  await drawn()
  assert.deepEqual(queue.view().uploads, [])
})
