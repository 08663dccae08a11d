import { ServiceError } from '../errors.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import type { KeyReach } from '../lib/key-reach.ts'
import type { LifecycleContext } from './lifecycle.ts'
import type { TreeNode } from './ports/sandbox-store.ts'

/** Nodes of one answer. */
const nodesMax = 1000
/** The newest checkpoints of an answer, whose own bytes are counted, and for how long. */
const countedMax = 200
export const countTimeoutMs = 5000

/** `uniqueBytes`: of checkpoints, where the driver counts them; see `DiskTrees`. */
export type SizedTreeNode = TreeNode & { uniqueBytes?: number }

export interface SandboxTree {
  /** The node above all others from which the sandbox comes, or itself. */
  rootId: string
  /** A parent stands before its children; these are in the order of their creation, each with all that is below it. */
  nodes: SizedTreeNode[]
  /** There are more. */
  isCut: boolean
}

/**
 * All that has the same beginning as a sandbox, in its organisation and within `reach`: sandboxes, their checkpoints, and what was started from
 * these. An image is no such beginning. Nothing is woken. Throws `not_found` for a sandbox that has neither a record nor checkpoints.
 */
export async function readTree(
  context: Pick<LifecycleContext, 'store' | 'driver' | 'log'>,
  { orgId, sandboxId, reach }: { orgId: string; sandboxId: string; reach?: KeyReach | undefined },
): Promise<SandboxTree> {
  const { nodes: found, isCut } = await context.store.sandboxTree(sandboxId, { orgId, reach, limit: nodesMax })
  const nodes = depthFirst(found)
  const [first] = nodes
  if (first === undefined) throw new ServiceError('not_found', `no sandbox ${sandboxId}`)
  const bytes = await uniqueBytesOf(context, nodes)
  const sized = nodes.map((node) => {
    const uniqueBytes = bytes.get(idOf(node))
    return uniqueBytes === undefined ? node : { ...node, uniqueBytes }
  })
  return { rootId: rootOf(nodes, sandboxId) ?? idOf(first), nodes: sized, isCut }
}

/** Of the newest ones that are ready. None where the driver cannot tell, fails or takes long: a tree is worth reading without. */
async function uniqueBytesOf(
  { driver, log }: Pick<LifecycleContext, 'driver' | 'log'>,
  nodes: readonly TreeNode[],
): Promise<ReadonlyMap<string, number>> {
  const ready = nodes.filter((node) => node.type === 'checkpoint' && node.checkpoint.status === 'ready')
  const newest = ready.toSorted((one, other) => createdMs(other) - createdMs(one)).slice(0, countedMax)
  const none = new Map<string, number>()
  if (driver.trees === undefined || newest.length === 0) return none
  try {
    return (await withTimeout(countTimeoutMs, driver.trees.uniqueBytes(newest.map(idOf)))) ?? none
  } catch (error) {
    log.warn({ err: error }, 'the bytes of checkpoints cannot be counted')
    return none
  }
}

/** `nodes`: parents before their children. */
function depthFirst(nodes: readonly TreeNode[]): TreeNode[] {
  const byAge = nodes.toSorted((one, other) => createdMs(one) - createdMs(other) || (idOf(one) < idOf(other) ? -1 : 1))
  const below = Map.groupBy(byAge, ({ parentId }) => parentId)
  const ordered: TreeNode[] = []
  const waiting = (below.get(null) ?? []).toReversed()
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    ordered.push(node)
    waiting.push(...(below.get(idOf(node)) ?? []).toReversed())
  }
  return ordered
}

function rootOf(nodes: readonly TreeNode[], sandboxId: string): string | undefined {
  const parents = new Map(nodes.map((node) => [idOf(node), node.parentId]))
  let id = parents.has(sandboxId) ? sandboxId : undefined
  for (let above = id && parents.get(id); above; above = parents.get(above)) id = above
  return id
}

function idOf(node: TreeNode): string {
  return node.type === 'sandbox' ? node.sandbox.id : node.checkpoint.id
}

function createdMs(node: TreeNode): number {
  return (node.type === 'sandbox' ? node.sandbox : node.checkpoint).createdAt.getTime()
}
