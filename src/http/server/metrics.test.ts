import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { DiskReport } from '../../sandbox/index.ts'
import { createMetrics } from './metrics.ts'
import { Streams } from './streams.ts'

const none = { creating: 0, running: 0, hibernated: 0, stopped: 0, error: 0 }

const disk = (): DiskReport => ({
  state: 'low',
  reason: 'little is left',
  poolBytes: 100,
  availableBytes: 50,
  belowBytes: 20,
  reserveBytes: 30,
  errors: { write: 2 },
})

test('metrics: scrapes that come at the same time share one reading of the database', async () => {
  let readings = 0
  let reading = Promise.withResolvers<typeof none>()
  const sandboxCounts = () => {
    readings++
    return reading.promise
  }
  const metrics = createMetrics({ sandboxCounts, warmCounts: () => ({ base: 3 }), disk }, new Streams())
  const scrapes = Array.from({ length: 50 }, () => metrics.text())
  reading.resolve({ ...none, running: 3, error: 1 })
  const texts = new Set(await Promise.all(scrapes))
  assert.equal(readings, 1)
  const [text = ''] = texts
  assert.equal(texts.size, 1)
  assert.match(text, /^atoll_running_sandboxes 3$/m)
  assert.match(text, /^atoll_sandboxes\{status="running"\} 3$/m)
  assert.match(text, /^atoll_sandboxes\{status="error"\} 1$/m)
  assert.match(text, /^atoll_sandboxes\{status="stopped"\} 0$/m)
  assert.match(text, /^atoll_disk_state\{state="ok"\} 0$/m)
  assert.match(text, /^atoll_disk_state\{state="low"\} 1$/m)
  assert.match(text, /^atoll_disk_available_bytes\{of="reserve"\} 30$/m)
  assert.match(text, /^atoll_disk_errors\{kind="write"\} 2$/m)

  reading = Promise.withResolvers()
  const next = metrics.text()
  reading.resolve({ ...none, running: 4 })
  assert.match(await next, /^atoll_running_sandboxes 4$/m)
  assert.equal(readings, 2)
})

test('metrics: a database that does not answer leaves out what it knows alone', async () => {
  const metrics = createMetrics(
    { sandboxCounts: () => Promise.reject(new Error('away')), warmCounts: () => ({}), disk: () => undefined },
    new Streams(),
  )
  const text = await metrics.text()
  assert.doesNotMatch(text, /^atoll_(?:running_)?sandboxes/m)
  assert.match(text, /^atoll_open_streams\{kind="events"\} 0$/m)
})
