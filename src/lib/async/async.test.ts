import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as tick } from 'node:timers/promises'
import { FairYield } from './fair-yield.ts'
import { KeyedMutex } from './mutex.ts'
import { backOffMs } from './retry.ts'
import { Semaphore } from './semaphore.ts'
import { singleFlight } from './single-flight.ts'

test('semaphore: no more callers run than there are permits, and a failure returns its permit', async () => {
  const semaphore = new Semaphore({ permits: 2 })
  let running = 0
  let most = 0
  const work = (fails: boolean) =>
    semaphore.use(async () => {
      running += 1
      most = Math.max(most, running)
      await tick()
      running -= 1
      if (fails) throw new Error('failed')
    })
  const results = await Promise.allSettled([true, false, true, false, true].map(work))
  assert.equal(most, 2)
  assert.deepEqual(
    results.map((result) => result.status),
    ['rejected', 'fulfilled', 'rejected', 'fulfilled', 'rejected'],
  )
  await work(false)
})

test('semaphore: a second release of a permit does nothing', async () => {
  const semaphore = new Semaphore({ permits: 1 })
  const release = await semaphore.acquire()
  const second = semaphore.acquire()
  release()
  release()
  const releaseSecond = await second
  let isAdmitted = false
  const third = semaphore.acquire().then(() => (isAdmitted = true))
  await tick()
  assert.equal(isAdmitted, false)
  releaseSecond()
  await third
})

test('semaphore: an abort ends the wait alone', async () => {
  const semaphore = new Semaphore({ permits: 1 })
  const release = await semaphore.acquire()
  const controller = new AbortController()
  const first = semaphore.acquire({ signal: controller.signal })
  const second = semaphore.acquire()
  controller.abort(new Error('given up'))
  await assert.rejects(first, /given up/)
  await assert.rejects(semaphore.acquire({ signal: controller.signal }), /given up/)
  assert.equal(semaphore.users(), 2)
  release()
  const releaseSecond = await second
  releaseSecond()
  assert.equal(await semaphore.use(() => Promise.resolve('done'), { signal: new AbortController().signal }), 'done')
})

test('semaphore: an abort of a heavy caller admits a lighter one behind it', async () => {
  const semaphore = new Semaphore({ permits: 10 })
  await semaphore.acquire({ weight: 8 })
  const controller = new AbortController()
  const heavy = semaphore.acquire({ weight: 5, signal: controller.signal })
  const light = semaphore.acquire({ weight: 2 })
  controller.abort(new Error('given up'))
  await assert.rejects(heavy, /given up/)
  await light
})

test('semaphore: each key has all its permits, and is forgotten without users', async () => {
  const semaphore = new Semaphore({ permitsPerKey: 1 })
  const releaseOne = await semaphore.acquire({ key: 'one' })
  const next = semaphore.acquire({ key: 'one' })
  const releaseOther = await semaphore.acquire({ key: 'other' })
  assert.deepEqual([semaphore.users('one'), semaphore.users('other')], [2, 1])
  releaseOne()
  releaseOne()
  assert.equal(semaphore.users('one'), 1)
  ;(await next)()
  releaseOther()
  assert.deepEqual([semaphore.users('one'), semaphore.users('other')], [0, 0])
})

test('semaphore: no key takes more than its share, and all together no more than there is', () => {
  const semaphore = new Semaphore({ permitsPerKey: 10, permits: 15 })
  const release = semaphore.tryAcquire({ key: 'a', weight: 8 })
  assert.ok(release)
  assert.equal(semaphore.tryAcquire({ key: 'a', weight: 3 }), undefined)
  assert.ok(semaphore.tryAcquire({ key: 'b', weight: 7 }))
  assert.equal(semaphore.tryAcquire({ key: 'c', weight: 1 }), undefined)
  release()
  release()
  assert.ok(semaphore.tryAcquire({ key: 'c', weight: 8 }))
  assert.equal(semaphore.tryAcquire({ key: 'd', weight: 1 }), undefined, 'a second release counts for nothing')
})

test('semaphore: callers of a key are admitted in order, and hold up no other key', async () => {
  const semaphore = new Semaphore({ permitsPerKey: 10, permits: 100 })
  const admitted: string[] = []
  const acquire = async (name: string, key: string, weight: number) => {
    const release = await semaphore.acquire({ key, weight })
    admitted.push(name)
    return release
  }
  const first = await acquire('first', 'a', 9)
  const second = acquire('second', 'a', 8)
  void acquire('third', 'a', 1)
  void acquire('other', 'b', 10)
  await tick()
  assert.deepEqual(admitted, ['first', 'other'])
  first()
  await tick()
  assert.deepEqual(admitted, ['first', 'other', 'second', 'third'])
  void acquire('last', 'a', 10)
  await tick()
  assert.equal(admitted.length, 4)
  ;(await second)()
  await tick()
  assert.equal(admitted.length, 4, 'the third still holds its permit')
})

async function admittedOf(semaphore: Semaphore, keys: readonly string[]): Promise<string[]> {
  let release = await semaphore.acquire({ key: keys[0] ?? '' })
  const admitted: string[] = []
  const calls = keys.slice(1).map(async (key) => {
    const mine = await semaphore.acquire({ key })
    admitted.push(key)
    release = mine
  })
  while (admitted.length < calls.length) {
    release()
    await tick()
  }
  await Promise.all(calls)
  return admitted
}

test('semaphore: keys are served in turn, however many callers one of them has', async () => {
  const admitted = await admittedOf(new Semaphore({ permits: 1 }), ['a', 'a', 'a', 'a', 'a', 'b', 'b', 'c'])
  assert.deepEqual(admitted, ['b', 'c', 'a', 'b', 'a', 'a', 'a'])
})

test('semaphore: a key is served by its share', async () => {
  const shareOf = (key: string) => (key === 'twice' ? 2 : 1)
  const keys = ['once', ...Array<string>(30).fill('once'), ...Array<string>(30).fill('twice')]
  const admitted = await admittedOf(new Semaphore({ permits: 1, shareOf }), keys)
  const ofTwice = admitted.slice(0, 30).filter((key) => key === 'twice').length
  assert.ok(ofTwice >= 19 && ofTwice <= 21, `${ofTwice} of 30`)
})

test('semaphore: a free permit goes to the key that holds the fewest', async () => {
  const semaphore = new Semaphore({ permits: 3 })
  const releases = await Promise.all(['a', 'a', 'b'].map((key) => semaphore.acquire({ key })))
  const admitted: string[] = []
  for (const key of ['a', 'a', 'b']) void semaphore.acquire({ key }).then(() => admitted.push(key))
  releases[2]?.()
  await tick()
  assert.deepEqual(admitted, ['b'])
})

test('semaphore: a weight above the share of a key takes all of the share', () => {
  const semaphore = new Semaphore({ permitsPerKey: 10, permits: 15 })
  const release = semaphore.tryAcquire({ key: 'a', weight: 1000 })
  assert.ok(release)
  assert.equal(semaphore.tryAcquire({ key: 'a', weight: 1 }), undefined)
  release()
  assert.ok(semaphore.tryAcquire({ key: 'a', weight: 1 }))
})

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

test('a fair yield: so many go on at a time, in order, and the event loop has its turn in between', async () => {
  const pieces = new FairYield(2)
  const done: string[] = []
  const workers = ['a', 'b', 'c', 'd', 'e'].map(async (name) => {
    for (let piece = 1; piece <= 2; piece++) {
      await pieces.next()
      done.push(`${name}${piece}`)
    }
  })
  const seen: number[] = []
  while (done.length < 10) {
    await tick()
    seen.push(done.length)
  }
  await Promise.all(workers)
  assert.deepEqual(done, ['a1', 'b1', 'c1', 'd1', 'e1', 'a2', 'b2', 'c2', 'd2', 'e2'])
  const steps = seen.map((count, index) => count - (seen[index - 1] ?? 0))
  assert.ok(
    steps.every((step) => step <= 2),
    steps.join(' '),
  )
})

test('a shared call: those who ask while it runs get its result, the next one a new one', async () => {
  let calls = 0
  let running = Promise.withResolvers<number>()
  const shared = singleFlight(() => {
    calls++
    return running.promise
  })
  const first = [shared(), shared(), shared()]
  running.resolve(1)
  assert.deepEqual(await Promise.all(first), [1, 1, 1])
  assert.equal(calls, 1)
  running = Promise.withResolvers()
  const second = [shared(), shared()]
  running.reject(new Error('away'))
  for (const result of await Promise.allSettled(second)) assert.equal(result.status, 'rejected')
  assert.equal(calls, 2)
  running = Promise.withResolvers()
  running.resolve(3)
  assert.equal(await shared(), 3)
})

test('back-off: the pause doubles with each failure, up to its bound, and jitter only shortens it', () => {
  const pauses = [1, 2, 3, 4, 50].map((failures) => backOffMs(failures, { firstMs: 100, maxMs: 500 }))
  assert.deepEqual(pauses, [100, 200, 400, 500, 500])
  for (let sample = 0; sample < 100; sample++) {
    const pause = backOffMs(2, { firstMs: 100, maxMs: 500, jitter: 0.5 })
    assert.ok(pause > 100 && pause <= 200, String(pause))
  }
})
