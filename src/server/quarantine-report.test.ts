import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { createQuarantineReporter } from './quarantine-report.ts'

const dayMs = 24 * 3_600_000

async function dataDirWith(t: TestContext, names: readonly string[]): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-quarantine-'))
  t.after(() => rm(dataDir, { recursive: true }))
  await mkdir(`${dataDir}/quarantine`)
  for (const name of names) await writeFile(`${dataDir}/quarantine/${name}`, '')
  return dataDir
}

test('quarantine report: what is held back, the oldest first, with its reason and its end', async (t) => {
  const dataDir = await dataDirWith(t, [
    '2026-01-03T00:00:00Z.checkpoint.unrecorded.cp-1',
    '2026-01-02T00:00:00Z.sandbox.unreadable.sb-1',
    'no item',
  ])
  const { count, items } = await createQuarantineReporter({ dataDir, quarantineKeptMs: dayMs })()
  assert.equal(count, 2)
  assert.deepEqual(
    items.map(({ why: _why, ...item }) => item),
    [
      { id: 'sb-1', kind: 'sandbox', sizeBytes: null, ...times('2026-01-02', '2026-01-03') },
      { id: 'cp-1', kind: 'checkpoint', sizeBytes: null, ...times('2026-01-03', '2026-01-04') },
    ],
  )
  assert.match(items[0]?.why ?? '', /^its record cannot be read: ./)
  const forEver = await createQuarantineReporter({ dataDir })()
  assert.deepEqual(
    forEver.items.map(({ removedAt }) => removedAt),
    [null, null],
  )
})

test('quarantine report: of many the oldest are listed and all are counted; without a folder there are none', async (t) => {
  const names = Array.from(
    { length: 1001 },
    (_, at) => `2026-01-02T00:00:00Z.sandbox.unknown.sb-${String(at).padStart(4, '0')}`,
  )
  const dataDir = await dataDirWith(t, names)
  const { count, items } = await createQuarantineReporter({ dataDir })()
  assert.deepEqual([count, items.length, items.at(-1)?.id], [1001, 1000, 'sb-0999'])
  assert.deepEqual(await createQuarantineReporter({ dataDir: `${dataDir}/none` })(), { count: 0, items: [] })
})

function times(since: string, removedAt: string): { since: Date; removedAt: Date } {
  return { since: new Date(since), removedAt: new Date(removedAt) }
}
