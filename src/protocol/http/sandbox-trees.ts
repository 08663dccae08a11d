import { z } from 'zod'
import { kind, origin } from './checkpoints.ts'
import { secondTime } from './common.ts'
import { at, ids } from './examples.ts'

export const treeNode = z
  .object({
    id: z.string().describe('Id of the sandbox or checkpoint'),
    type: z.enum(['sandbox', 'checkpoint']).describe('What it is'),
    parentId: z
      .string()
      .nullable()
      .describe('Of a sandbox: the checkpoint that it was started from; of a checkpoint: its sandbox. null: a root'),
    name: z.string().optional().describe('Its name, if it has one'),
    status: z
      .enum(['creating', 'running', 'hibernated', 'stopped', 'error', 'processing', 'ready', 'failed'])
      .describe('Of a sandbox as `Sandbox` has it, of a checkpoint as `Checkpoint` has it'),
    reason: z.string().optional().describe('Why a sandbox is in this state, or a checkpoint has failed'),
    kind: kind.optional().describe('Of a checkpoint'),
    origin: origin.optional(),
    sizeBytes: z.number().optional().describe('Of a checkpoint: its space on disk, shared or not'),
    uniqueBytes: z
      .number()
      .optional()
      .describe('Of a checkpoint: bytes that its deletion would give back; absent where they are not counted'),
    createdAt: secondTime.describe('When it was made'),
    sessionId: z.string().optional().describe('Session whose sandbox it is, or which needs the checkpoint'),
  })
  .meta({ id: 'SandboxTreeNode' })

export const tree = z
  .object({
    sandboxId: z.string().describe('The sandbox that was asked for'),
    rootId: z.string().describe('The node above all others from which it comes, or itself'),
    nodes: z
      .array(treeNode)
      .describe('A parent stands before its children; these by age, each with all that is below it. At most 1000'),
    isCut: z.boolean().describe('There are more'),
  })
  .meta({
    id: 'SandboxTree',
    examples: [
      {
        sandboxId: ids.sandbox,
        rootId: ids.sandbox,
        nodes: [{ id: ids.sandbox, type: 'sandbox', parentId: null, status: 'running', createdAt: at.second }],
        isCut: false,
      },
    ],
  })

const disk = z.string().min(1).max(300)
const diskRule = 'A checkpoint of the tree of the sandbox: its id, its name, or `SANDBOX/NAME`'

export const compareQuery = z.object({
  from: disk.describe(diskRule).meta({ examples: [ids.checkpoint] }),
  to: disk.optional().describe(`${diskRule}. Absent: the disk that the sandbox has now`),
  folder: z.string().optional().describe('Absolute path in the sandbox; default `/workspace`'),
})

/** A file that differs between two disks. */
export const fileChange = z
  .object({
    path: z.string().describe('Relative to the folder. Bytes that are no UTF-8 are replaced'),
    oldPath: z.string().optional().describe('Of a renamed file: its former path'),
    change: z.enum(['added', 'modified', 'deleted', 'renamed']).describe('What has happened to it'),
    isBinary: z.boolean().describe('It is no text, or too long to be compared: it has no lines'),
    addedLines: z.int().describe('Lines that only the later one has'),
    removedLines: z.int().describe('Lines that only the earlier one has'),
  })
  .meta({ id: 'ComparedFile' })

export const comparison = z
  .object({
    from: z.string().describe('Id of the checkpoint'),
    to: z.string().nullable().describe('Id of the checkpoint; null: the disk that the sandbox has now'),
    folder: z.string().describe('The folder whose files were compared'),
    files: z.array(fileChange).describe('By path, at most 1000'),
    addedLines: z.int().describe('Of all files, listed or not'),
    removedLines: z.int().describe('Of all files, listed or not'),
    isCut: z.boolean().describe('There are more files than are listed'),
  })
  .meta({
    id: 'DiskComparison',
    examples: [
      {
        from: ids.checkpoint,
        to: null,
        folder: '/workspace',
        files: [{ path: 'app/index.html', change: 'modified', isBinary: false, addedLines: 3, removedLines: 1 }],
        addedLines: 3,
        removedLines: 1,
        isCut: false,
      },
    ],
  })

/** What `Accept` has for a unified diff. */
export const patchType = 'text/x-diff'
export const patchExample = `diff --git a/app/index.html b/app/index.html
--- a/app/index.html
+++ b/app/index.html
@@ -1 +1 @@
-<h1>Reef</h1>
+<h1>Coral reef</h1>
`
