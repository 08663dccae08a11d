import type { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { sandboxTrees as wire } from '../../protocol/http/index.ts'
import type { CompareDisks, SizedTreeNode } from '../../sandbox/index.ts'
import { answerComparison } from '../server/patch-answer.ts'
import { routesOf } from '../server/route.ts'
import { seconds } from '../server/time.ts'
import { originOf } from './checkpoints.ts'

const route = routesOf('Checkpoints', 'sandbox')

export const sandboxTreeRoutes = [
  route('GET', '/api/sandboxes/:id/tree', {
    id: 'getSandboxTree',
    summary: 'Read the tree of a sandbox',
    description:
      'All sandboxes and checkpoints that have the same beginning, also those of turns of sessions. Images are no such beginning. Nothing is ' +
      'woken. `GET /api/events` tells when it changes.',
    answers: { 200: { description: 'The tree', body: wire.tree } },
    async answer({ orgId, params, deps, request }) {
      const tree = await deps.sandboxes.tree(orgId, params.id, request.caller?.reach)
      return { sandboxId: params.id, ...tree, nodes: tree.nodes.map(nodeBody) }
    },
  }),
  route('GET', '/api/sandboxes/:id/diff', {
    id: 'compareDisks',
    audited: true,
    summary: 'Compare the files of two checkpoints',
    description:
      'Or those of a checkpoint and the present of the sandbox, which is not woken. As git sees them: what a `.gitignore` names does not count. ' +
      'With `Accept: text/x-diff` the answer is a unified diff of at most 64 MiB, which `git apply` takes.',
    query: wire.compareQuery,
    answers: {
      200: {
        description: 'What has to change in `from` for it to become `to`',
        body: wire.comparison,
        content: wire.patchType,
        example: wire.patchExample,
      },
    },
    errors: ['conflict', 'sandbox_stopped', 'not_implemented', 'no_capacity', 'unavailable'],
    async handle(call) {
      const { orgId, params, query, request, deps } = call
      const { trees } = deps.sandboxes
      // First, so that a strange sandbox is not found whatever the driver can do.
      if (trees === undefined) {
        await deps.sandboxes.tree(orgId, params.id, request.caller?.reach)
        throw new ServiceError('not_implemented', 'the runtime of this server does not compare disks')
      }
      const { from, ...rest } = query
      const { reach } = request.caller ?? {}
      const asked = (signal: AbortSignal): CompareDisks => ({ from, signal, ...defined({ ...rest, reach }) })
      return await answerComparison(call, {
        compare: (signal) => trees.compare(orgId, params.id, asked(signal)),
        patch: (signal) => trees.patch(orgId, params.id, asked(signal)),
      })
    },
  }),
]

function nodeBody(node: SizedTreeNode): z.output<typeof wire.treeNode> {
  const { type, parentId, sessionId, uniqueBytes } = node
  if (type === 'sandbox') {
    const { id, name, status, reason, createdAt } = node.sandbox
    return { id, type, parentId, status, createdAt: seconds(createdAt), ...defined({ name, reason, sessionId }) }
  }
  const { id, name, status, error: reason, kind, owner, sizeBytes, createdAt } = node.checkpoint
  return {
    ...{ id, type, parentId, name, status, kind, origin: originOf[owner], sizeBytes },
    createdAt: seconds(createdAt),
    ...defined({ reason, uniqueBytes, sessionId }),
  }
}
