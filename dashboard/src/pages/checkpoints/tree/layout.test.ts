import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { SandboxTreeNode } from 'atoll-sdk'
import { layoutOf, predecessorOf } from './layout.ts'

function sandbox(id: string, parentId: string | null = null): SandboxTreeNode {
  return { id, type: 'sandbox', parentId, status: 'running', createdAt: '2026-01-15T10:30:00Z' }
}

function checkpoint(id: string, parentId: string | null, status: SandboxTreeNode['status'] = 'ready'): SandboxTreeNode {
  return { id, type: 'checkpoint', parentId, status, createdAt: '2026-01-15T10:30:00Z' }
}

/** The rows as characters: `|` a line that passes, `/` one that bends to a fork, `o` and `*` with what leads on below as a `v`. */
function drawn(nodes: readonly SandboxTreeNode[]): string[] {
  return layoutOf(nodes).rows.map(({ node, lane, passing, hasAbove, hasBelow }) => {
    const cells = Array.from({ length: lane }, (_, at): string => (passing.includes(at) ? '|' : ' '))
    if (node.type === 'sandbox' && hasAbove) cells[lane - 1] = passing.includes(lane - 1) ? '+' : '`'
    return `${cells.join('')}${node.type === 'sandbox' ? 'o' : '*'}${hasBelow ? 'v' : ''} ${node.id}`
  })
}

test('layout of a tree: a fork stands below its checkpoint, one lane to the right, and the lane of its source goes on', () => {
  const nodes = [
    sandbox('a'),
    checkpoint('a1', 'a'),
    sandbox('b', 'a1'),
    checkpoint('b1', 'b'),
    checkpoint('a2', 'a'),
    sandbox('c', 'a2'),
    sandbox('d', 'a2'),
    checkpoint('d1', 'd'),
  ]
  assert.deepEqual(drawn(nodes), ['ov a', '*v a1', '+ov b', '|* b1', '*v a2', '+o c', '`ov d', ' * d1'])
})

test('layout of a tree: levels, positions and edges are those of parents and children', () => {
  const { rows, indexOf, laneMax } = layoutOf([
    sandbox('a'),
    checkpoint('a1', 'a'),
    sandbox('b', 'a1'),
    checkpoint('a2', 'a'),
  ])
  assert.deepEqual(
    rows.map(({ level, position, siblings, parent, firstChild }) => [level, position, siblings, parent, firstChild]),
    [
      [1, 1, 1, undefined, 1],
      [2, 1, 2, 0, 2],
      [3, 1, 1, 1, undefined],
      [2, 2, 2, 0, undefined],
    ],
  )
  assert.equal(indexOf.get('b'), 2)
  assert.equal(laneMax, 1)
})

test('layout of a tree: nodes without a parent are roots, each with a lane of its own', () => {
  const nodes = [checkpoint('lost', null), sandbox('a', 'lost'), checkpoint('other', 'deleted'), sandbox('b')]
  assert.deepEqual(drawn(nodes), ['*v lost', '`o a', '* other', 'o b'])
})

test('layout of a tree: a thousand forks of forks are laid out', () => {
  const nodes = Array.from({ length: 1000 }, (_, index) =>
    index % 2 === 0
      ? sandbox(`sb-${index}`, index === 0 ? null : `cp-${index - 1}`)
      : checkpoint(`cp-${index}`, `sb-${index - 1}`),
  )
  const { rows, laneMax } = layoutOf(nodes)
  assert.equal(laneMax, 499)
  assert.equal(rows.at(-1)?.passing.length, 0)
})

test('predecessor of a node: the checkpoint before, that which a sandbox began as, or its newest', () => {
  const layout = layoutOf([
    sandbox('a'),
    checkpoint('a1', 'a'),
    sandbox('b', 'a1'),
    checkpoint('b1', 'b'),
    checkpoint('failed', 'a', 'failed'),
    checkpoint('a2', 'a'),
  ])
  const before = (id: string) => predecessorOf(layout, layout.indexOf.get(id) ?? -1)?.id
  assert.deepEqual(
    ['a', 'a1', 'b', 'b1', 'a2'].map((id) => before(id)),
    ['a2', undefined, 'a1', 'a1', 'a1'],
  )
})
