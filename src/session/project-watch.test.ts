import assert from 'node:assert/strict'
import { test } from 'node:test'
import { PreviewWatch } from './project-watch.ts'

test('preview: a server that takes long to listen is seen, and looked for no more', async () => {
  const settled = Promise.withResolvers<void>()
  let looks = 0
  const watch = new PreviewWatch(1, async () => {
    looks += 1
    if (looks === 18) settled.resolve()
    return looks === 18
  })
  // Its timer alone would not keep the process alive.
  const alive = setInterval(() => {}, 1000)
  watch.watch()
  await settled.promise
  await watch.lookNow()
  clearInterval(alive)
  watch.stop()
  assert.equal(looks, 18)
})
