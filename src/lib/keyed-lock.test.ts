import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as tick } from 'node:timers/promises'
import { KeyedLock } from './keyed-lock.ts'

test('work of one key runs in the order of the calls and never overlaps', async () => {
  const lock = new KeyedLock()
  const log: string[] = []
  const work = (name: string) => async () => {
    log.push(`${name} begins`)
    await tick()
    log.push(`${name} ends`)
  }
  await Promise.all([lock.run('k', work('a')), lock.run('k', work('b'))])
  assert.deepEqual(log, ['a begins', 'a ends', 'b begins', 'b ends'])
})

test('work of different keys overlaps', async () => {
  const lock = new KeyedLock()
  let release = () => {}
  const first = lock.run('a', () => new Promise<void>((resolve) => (release = resolve)))
  await lock.run('b', async () => {})
  release()
  await first
})

test('a failure reaches its caller alone and leaves no key behind', async () => {
  const lock = new KeyedLock()
  const failing = lock.run('k', () => Promise.reject(new Error('no')))
  const next = lock.run('k', () => Promise.resolve(7))
  await assert.rejects(failing, /no/)
  assert.equal(await next, 7)
  assert.equal(lock.isBusy('k'), false)
})

test('allIdle waits for the work of every key', async () => {
  const lock = new KeyedLock()
  let ended = 0
  const works = ['a', 'a', 'b'].map((key) =>
    lock.run(key, async () => {
      await tick()
      ended += 1
    }),
  )
  await lock.allIdle()
  assert.equal(ended, works.length)
})
