import type { SandboxTreeNode } from 'atoll-sdk'
import { visible } from '../../../lib/visible.ts'

/**
 * A node in its row. Each sandbox has a lane, with its checkpoints below it in the order of their age; what was started from a checkpoint stands
 * right below that, one lane further to the right.
 */
export interface TreeRow {
  node: SandboxTreeNode
  lane: number
  /** From 1 on: a fork is below its checkpoint, which is below its sandbox. */
  level: number
  /** Among what has the same parent, from 1 on. */
  position: number
  siblings: number
  /** Indices of rows. */
  parent: number | undefined
  firstChild: number | undefined
  /** Lanes to its left whose line goes through its row. */
  passing: readonly number[]
  /** A line comes from the row above; that of a fork bends from the lane to its left. */
  hasAbove: boolean
  hasBelow: boolean
}

export interface TreeLayout {
  rows: readonly TreeRow[]
  indexOf: ReadonlyMap<string, number>
  laneMax: number
}

/** `nodes`: a parent before its children, each with all that is below it, as the server sends them. One whose parent is missing is a root. */
export function layoutOf(nodes: readonly SandboxTreeNode[]): TreeLayout {
  const indexOf = new Map(nodes.map(({ id }, index) => [id, index]))
  const parents = nodes.map(({ parentId }, index) => {
    const parent = parentId === null ? undefined : indexOf.get(parentId)
    return parent !== undefined && parent < index ? parent : undefined
  })
  const children = nodes.map(() => [] as number[])
  const roots: number[] = []
  for (const [index, parent] of parents.entries())
    (parent === undefined ? roots : (children[parent] ?? roots)).push(index)

  const lanes: number[] = []
  const levels: number[] = []
  /** By the first row of a lane: its last one, where its line ends. */
  const ends = new Map<number, number>()
  const heads: number[] = []
  for (const [index, node] of nodes.entries()) {
    const parent = parents[index]
    const isFork = node.type === 'sandbox' && parent !== undefined
    lanes.push(parent === undefined ? 0 : (lanes[parent] ?? 0) + (isFork ? 1 : 0))
    levels.push(parent === undefined ? 1 : (levels[parent] ?? 0) + 1)
    heads.push(parent === undefined || isFork ? index : (heads[parent] ?? index))
    // The line of a checkpoint's lane leads to its last fork.
    const drawnIn = isFork ? heads[parent] : heads[index]
    if (drawnIn !== undefined) ends.set(drawnIn, index)
  }

  /** First rows of the lanes that lead to the present row, by lane. */
  const open: number[] = []
  const rows = nodes.map((node, index): TreeRow => {
    const lane = lanes[index] ?? 0
    const head = heads[index] ?? index
    const parent = parents[index]
    open.length = lane
    const passing = open.flatMap((first, at) => ((ends.get(first) ?? -1) > index ? [at] : []))
    open[lane] = head
    const same = parent === undefined ? roots : (children[parent] ?? [])
    return {
      node,
      lane,
      level: levels[index] ?? 1,
      position: same.indexOf(index) + 1,
      siblings: same.length,
      parent,
      firstChild: children[index]?.[0],
      passing,
      hasAbove: parent !== undefined,
      hasBelow: (ends.get(head) ?? -1) > index,
    }
  })
  return { rows, indexOf, laneMax: lanes.reduce((most, lane) => Math.max(most, lane), 0) }
}

/**
 * What a node is compared with unless another is chosen: a checkpoint with the one before it of its sandbox, or with that which the sandbox began as;
 * a sandbox with what it began as, or with its newest checkpoint. Undefined where there is none that is ready.
 */
export function predecessorOf({ rows }: TreeLayout, index: number): SandboxTreeNode | undefined {
  const row = rows[index]
  if (row === undefined) return undefined
  const parent = row.parent === undefined ? undefined : rows[row.parent]
  if (row.node.type === 'sandbox') {
    if (parent !== undefined && isReady(parent.node)) return parent.node
    return rows.findLast(({ parent: of, node }) => of === index && isReady(node))?.node
  }
  const before = rows
    .slice(0, index)
    .findLast(({ parent: of, node }) => of === row.parent && of !== undefined && isReady(node))
  if (before !== undefined) return before.node
  const origin = parent?.parent === undefined ? undefined : rows[parent.parent]?.node
  return origin !== undefined && isReady(origin) ? origin : undefined
}

function isReady({ type, status }: SandboxTreeNode): boolean {
  return type === 'checkpoint' && status === 'ready'
}

/** `v1`, or its id where it has no name of its own: those of turns are named by the server. */
export function labelOf({ id, name, origin }: SandboxTreeNode): string {
  return name === undefined || name === '' || origin === 'turn' ? id : visible(name)
}
