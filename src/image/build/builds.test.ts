import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { BuildEvent, BuiltImage } from '../image.ts'
import { Builds } from './builds.ts'

const log = (message: string): BuildEvent => ({ event: 'build_log', step: 1, type: 'run', message })

/** A build that the test ends. */
function scripted() {
  const started: { emit: (event: BuildEvent) => void; signal: AbortSignal; end: PromiseWithResolvers<BuiltImage> }[] =
    []
  const work = async (emit: (event: BuildEvent) => void, signal: AbortSignal): Promise<BuiltImage> => {
    const end = Promise.withResolvers<BuiltImage>()
    started.push({ emit, signal, end })
    return await end.promise
  }
  return { started, work }
}

test('builds: equal requests share one build, and a later one hears what was said', async () => {
  const removed: string[] = []
  const builds = new Builds(async (key) => void removed.push(key))
  const { started, work } = scripted()
  const heard: BuildEvent[][] = [[], []]
  const first = builds.join('a', work, { onEvent: (event) => heard[0]!.push(event) })
  started[0]!.emit(log('one'))
  const second = builds.join('a', work, { onEvent: (event) => heard[1]!.push(event) })
  started[0]!.emit(log('two'))
  assert.equal(started.length, 1)
  started[0]!.end.resolve({ checkpointId: 'cp-1' })
  assert.deepEqual(await Promise.all([first, second]), [{ checkpointId: 'cp-1' }, { checkpointId: 'cp-1' }])
  assert.deepEqual(heard, [
    [log('one'), log('two')],
    [log('one'), log('two')],
  ])
  assert.deepEqual(removed, ['a'])
})

test('builds: another key is another build, and one that has ended is begun again', async () => {
  const builds = new Builds(async () => undefined)
  const { started, work } = scripted()
  const both = [builds.join('a', work, {}), builds.join('b', work, {})]
  assert.equal(started.length, 2)
  started[0]!.end.reject(new Error('broken'))
  started[1]!.end.resolve({ checkpointId: 'cp-2' })
  await assert.rejects(both[0]!, /broken/)
  assert.equal((await both[1])?.checkpointId, 'cp-2')
  const again = builds.join('a', work, {})
  started[2]!.end.resolve({ checkpointId: 'cp-3' })
  assert.equal((await again).checkpointId, 'cp-3')
})

test('builds: a build ends with the last request that gives it up, which waits for its end', async () => {
  const builds = new Builds(async () => undefined)
  const { started, work } = scripted()
  const gone = [new AbortController(), new AbortController()]
  const requests = gone.map(({ signal }) => builds.join('a', work, { signal }))
  gone[0]!.abort(new Error('left'))
  await assert.rejects(requests[0]!, /left/)
  assert.equal(started[0]!.signal.aborted, false)
  let isOver = false
  const last = assert.rejects(requests[1]!, /left too/).then(() => (isOver = true))
  gone[1]!.abort(new Error('left too'))
  await new Promise((resolve) => setImmediate(resolve))
  assert.equal(started[0]!.signal.aborted, true)
  assert.equal(isOver, false)
  // A request that comes now does not get a build that is being given up.
  const next = builds.join('a', work, {})
  started[0]!.end.reject(started[0]!.signal.reason)
  await last
  await new Promise((resolve) => setImmediate(resolve))
  started[1]!.end.resolve({ checkpointId: 'cp-9' })
  assert.equal((await next).checkpointId, 'cp-9')
})

test('builds: a watcher hears the end and keeps no build alive', async () => {
  const builds = new Builds(async () => undefined)
  const { started, work } = scripted()
  const gone = new AbortController()
  const request = builds.join('a', work, { signal: gone.signal })
  const watched = builds.watch('a', {})
  gone.abort(new Error('left'))
  await new Promise((resolve) => setImmediate(resolve))
  assert.equal(started[0]!.signal.aborted, true)
  started[0]!.end.reject(new Error('ended'))
  await assert.rejects(request, /left/)
  await watched
  await builds.watch('a', {})
})
