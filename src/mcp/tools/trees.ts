import { z } from 'zod'
import { Sandbox, type SandboxTreeNode } from '../../../sdk/src/index.ts'
import { reads, tool } from '../tool.ts'
import { beginningOf, comparedFile, fileOf, filesMax, firstPart, sandboxId } from './common.ts'

/** Nodes of a result: a model has to read them. */
const nodesMax = 200

const checkpoint = z.string().min(1).describe('Id, name in this sandbox, or SANDBOX/NAME')
const node = z.object({
  id: z.string(),
  type: z.string(),
  parent_id: z.string().nullable(),
  name: z.string().optional(),
  status: z.string(),
  reason: z.string().optional(),
  kind: z.string().optional(),
  origin: z.string().optional(),
  unique_bytes: z.number().optional(),
  session_id: z.string().optional(),
  created_at: z.string(),
})
export const treeTools = [
  tool({
    name: 'sandbox_tree',
    title: 'Show the tree of a sandbox',
    description: 'Show where a sandbox comes from, its checkpoints, and what was forked from them. Wakes nothing.',
    input: z.object({ sandbox_id: sandboxId }),
    output: z.object({
      sandbox_id: z.string(),
      root_id: z.string(),
      nodes: z.array(node),
      truncated: z.boolean().optional(),
    }),
    hints: reads,
    async run({ sandbox_id }, { client, signal }) {
      const sandbox = await Sandbox.connect(sandbox_id, { client, signal })
      const { rootId, nodes, isCut } = await sandbox.tree({ signal })
      const isLong = isCut || nodes.length > nodesMax
      return {
        sandbox_id,
        root_id: rootId,
        nodes: nodes.slice(0, nodesMax).map(nodeOf),
        ...(isLong ? { truncated: true } : {}),
      }
    },
  }),
  tool({
    name: 'sandbox_diff',
    title: 'Compare checkpoints',
    description: 'Show how files differ between two checkpoints, or between one and now. Wakes nothing.',
    input: z.object({
      sandbox_id: sandboxId,
      from: checkpoint,
      to: checkpoint.optional().describe('Default: the present'),
      folder: z.string().optional().describe('Absolute; default /workspace'),
      patch: z.boolean().optional().describe('Also return a unified diff'),
    }),
    output: z.object({
      sandbox_id: z.string(),
      files: z.array(comparedFile),
      added_lines: z.int(),
      removed_lines: z.int(),
      patch: z.string().optional(),
      truncated: z.boolean().optional(),
    }),
    hints: reads,
    async run({ sandbox_id, from, to, folder, patch: isPatchWanted = false }, { client, signal }) {
      const sandbox = await Sandbox.connect(sandbox_id, { client, signal })
      const disks = { from, to, folder, signal }
      const { files, addedLines, removedLines, isCut } = await sandbox.diff(disks)
      const patch = isPatchWanted ? firstPart(await beginningOf(await sandbox.patchStream(disks))) : undefined
      const isLong = isCut || files.length > filesMax || patch?.isCut === true
      return {
        sandbox_id,
        files: files.slice(0, filesMax).map(fileOf),
        added_lines: addedLines,
        removed_lines: removedLines,
        ...(patch === undefined ? {} : { patch: patch.text }),
        ...(isLong ? { truncated: true } : {}),
      }
    },
  }),
]

function nodeOf({ parentId, uniqueBytes, sessionId, createdAt, ...rest }: SandboxTreeNode): z.input<typeof node> {
  const { id, type, name, status, reason, kind, origin } = rest
  return {
    ...{ id, type, parent_id: parentId, name, status, reason, kind, origin },
    ...{ unique_bytes: uniqueBytes, session_id: sessionId, created_at: createdAt },
  }
}
