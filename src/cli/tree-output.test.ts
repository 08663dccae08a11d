import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { SandboxTree, SandboxTreeNode } from '../../sdk/src/index.ts'
import { widthOf } from './output.ts'
import { treeText } from './tree-output.ts'

const nowMs = Date.parse('2026-05-01T12:00:00Z')
const createdAt = '2026-05-01T11:57:00Z'

function sandbox(id: string, parentId: string | null, more: Partial<SandboxTreeNode> = {}): SandboxTreeNode {
  return { id, type: 'sandbox', parentId, status: 'running', createdAt, ...more }
}

function checkpoint(id: string, parentId: string | null, more: Partial<SandboxTreeNode> = {}): SandboxTreeNode {
  return { id, type: 'checkpoint', parentId, status: 'ready', kind: 'full', origin: 'client', createdAt, ...more }
}

function treeOf(nodes: SandboxTreeNode[], sandboxId = nodes[0]?.id ?? ''): SandboxTree {
  return { sandboxId, rootId: nodes[0]?.id ?? '', nodes, isCut: false }
}

const whole = treeOf([
  sandbox('sb-1', null, { name: 'web' }),
  checkpoint('cp-1', 'sb-1', { name: 'v1', uniqueBytes: 4_100_000 }),
  sandbox('sb-2', 'cp-1', { name: 'fork-a', status: 'hibernated' }),
  checkpoint('cp-2', 'sb-2', { name: '2026-05-01T11:57:00Z', kind: 'disk_only', uniqueBytes: 820 }),
  sandbox('sb-3', 'cp-1', { status: 'error', reason: 'oom' }),
  checkpoint('cp-3', 'sb-1', { name: 'turn cp-3', origin: 'turn' }),
  checkpoint('cp-4', 'sb-1', { name: 'v2', status: 'failed' }),
])

test('tree: names that commands take, states, ages and own bytes, aligned', () => {
  assert.equal(
    treeText(whole, { nowMs }),
    [
      '● web                              running      3 min ago',
      '├─◆ v1                             full         3 min ago  4.1 MB',
      '│ ├─● fork-a                       hibernated   3 min ago',
      '│ │ └─◇ cp-2 2026-05-01T11:57:00Z  disk         3 min ago   820 B',
      '│ └─○ sb-3                         error (oom)  3 min ago',
      '├─◆ cp-3                           full, turn   3 min ago',
      '└─◆ v2                             failed       3 min ago',
    ].join('\n'),
  )
  assert.match(treeText(whole, { isExact: true }), /^● web +running +2026-05-01T11:57:00Z\n/)
})

test('tree: in colour it says the same, and shows which sandbox was asked for', () => {
  const colored = treeText({ ...whole, sandboxId: 'sb-2' }, { nowMs, hasColors: true })
  // eslint-disable-next-line no-control-regex
  assert.equal(colored.replaceAll(/\u001b\[\d*m/g, ''), treeText(whole, { nowMs }))
  assert.ok(colored.includes('\u001b[1mfork-a\u001b[0m'))
  assert.ok(colored.includes('\u001b[32m●\u001b[0m web') && colored.includes('\u001b[32mrunning'))
  assert.ok(colored.includes('\u001b[31merror (oom)'))
})

test('tree: a line keeps to the terminal, whatever the names and however deep', () => {
  const deep = [sandbox('sb-0', null, { name: 'a'.repeat(63) })]
  for (let level = 1; level < 200; level++) {
    const [id, parent] = [level % 2 === 0 ? `sb-${level}` : `cp-${level}`, deep[level - 1]?.id ?? null]
    deep.push(level % 2 === 0 ? sandbox(id, parent) : checkpoint(id, parent, { name: '界'.repeat(60) }))
  }
  for (const width of [60, 80, 120]) {
    const lines = treeText(treeOf(deep), { nowMs, widthMax: width }).split('\n')
    assert.equal(lines.length, 200)
    for (const line of lines) assert.ok(widthOf(line) <= width, line)
    assert.match(lines[199] ?? '', /….*cp-199/)
  }
})

test('tree: what stands in names and reasons does not steer the terminal', () => {
  const name = 'a\u001b[2J\nb\u202e\u0000'
  const nodes = [sandbox('sb-1', null, { reason: name, status: 'error' }), checkpoint('cp-1', 'sb-1', { name })]
  const text = treeText(treeOf(nodes), { nowMs, widthMax: 80 })
  assert.equal(text.split('\n').length, 2)
  // eslint-disable-next-line no-control-regex
  assert.doesNotMatch(text, /[\u0000-\u0009\u000b-\u001f\u202e]/)
})

test('tree: several roots stand side by side', () => {
  const nodes = [checkpoint('cp-1', null, { name: 'v1' }), sandbox('sb-2', 'cp-1'), checkpoint('cp-3', null)]
  assert.deepEqual(
    treeText(treeOf(nodes), { nowMs })
      .split('\n')
      .map((line) => line.split('  ')[0]),
    ['◆ v1', '└─● sb-2', '◆ cp-3'],
  )
})
