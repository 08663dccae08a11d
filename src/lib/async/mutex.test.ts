import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as tick } from 'node:timers/promises'
import { KeyedMutex } from './mutex.ts'

test('mutex: holders of one key run in the order of the calls and never overlap', async () => {
  const mutex = new KeyedMutex()
  const log: string[] = []
  const work = (name: string) => async () => {
    log.push(`${name} begins`)
    await tick()
    log.push(`${name} ends`)
  }
  await Promise.all([mutex.run('k', work('a')), mutex.run('k', work('b'))])
  assert.deepEqual(log, ['a begins', 'a ends', 'b begins', 'b ends'])
})

test('mutex: holders of different keys overlap', async () => {
  const mutex = new KeyedMutex()
  let release = () => {}
  const first = mutex.run('a', () => new Promise<void>((resolve) => (release = resolve)))
  await mutex.run('b', async () => {})
  release()
  await first
})

test('mutex: a failure reaches its caller alone and leaves no key behind', async () => {
  const mutex = new KeyedMutex()
  const failing = mutex.run('k', () => Promise.reject(new Error('no')))
  const next = mutex.run('k', () => Promise.resolve(7))
  await assert.rejects(failing, /no/)
  assert.equal(await next, 7)
  assert.equal(mutex.isLocked('k'), false)
})

test('mutex: allSettled waits for the holders of every key', async () => {
  const mutex = new KeyedMutex()
  let ended = 0
  const works = ['a', 'a', 'b'].map((key) =>
    mutex.run(key, async () => {
      await tick()
      ended += 1
    }),
  )
  await mutex.allSettled()
  assert.equal(ended, works.length)
})
