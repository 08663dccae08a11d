import { z } from 'zod'
import { milliTime } from './common.ts'
import { at, ids, previewHost } from './examples.ts'
import { fileChange } from './sandbox-trees.ts'
import { ownerQuery } from './sessions.ts'

const usage = z
  .object({
    inputTokens: z.int().describe('All that the model has read'),
    cacheReadTokens: z.int().describe('Part of the input: from a cache of the model API'),
    cacheWriteTokens: z.int().describe('Part of the input: written to a cache of the model API'),
    outputTokens: z.int().describe('All that the model has written'),
    totalCostUsd: z.number().optional().describe('US dollars; left out while it is unknown'),
  })
  .meta({ id: 'TurnUsage' })

const preview = z
  .enum(['ready', 'none'])
  .nullable()
  .describe('Whether the preview answered at the end; null: not known')
const durationMs = z.number().nullable().describe('How long it took; null while a turn runs')

export const timelineQuery = ownerQuery.extend({
  limit: z.coerce.number().int().min(1).max(100).optional().meta({ description: 'Most turns on a page', default: 20 }),
  cursor: z.string().max(200).optional().describe('`nextCursor` of the page before'),
  branch: z.enum(['all']).optional().describe('`all`: also turns that a rewind has left'),
})

const fork = z.object({
  id: z.string().describe('Id of the fork'),
  name: z.string().optional().describe('Its name, if it has one'),
  status: z.enum(['running', 'ended']).describe('`running` until it is ended'),
  activity: z.enum(['starting', 'working', 'idle', 'paused', 'failed', 'ended']).describe('What it does now'),
  archivedReason: z.string().optional().describe('Why nobody needs it any more; a message takes that back'),
  createdAt: milliTime.describe('When it was forked'),
})

const turn = z
  .object({
    messageId: z.string().describe('Id of the message that it answers'),
    message: z.string().describe('The first 1000 characters of that message'),
    parentMessageId: z.string().nullable().describe('The turn before it in its branch; null for the first'),
    firstEvent: z.int().describe('Number of its first event in the stream'),
    lastEvent: z.int().nullable().describe('Number of its last event, `turn_complete`; null while it runs'),
    startedAt: milliTime.describe('When it began'),
    endedAt: milliTime.nullable().describe('When it ended; null while it runs'),
    durationMs,
    result: z.string().nullable().describe('`subtype` of its `result`; null while it runs'),
    checkpoint: z
      .object({
        id: z.string().describe('Id of the checkpoint'),
        kind: z.enum(['full', 'disk_only']).describe('With memory, or of the disk alone'),
        sizeBytes: z.number().describe('Its space on disk, shared or not'),
        durationMs: z.number().describe('How long it took to be made'),
        afterEvent: z.int().describe('Number of the newest event then'),
        createdAt: milliTime.describe('When it was made'),
      })
      .nullable()
      .describe('The state at its end; null where none was made or none is kept'),
    files: z
      .object({
        files: z.array(fileChange.omit({ oldPath: true })).describe('By path, at most 100'),
        addedLines: z.int().describe('Of all files, listed or not'),
        removedLines: z.int().describe('Of all files, listed or not'),
        isCut: z.boolean().describe('There are more files than are listed'),
      })
      .nullable()
      .describe('What it has changed in the working folder; null while that is not known'),
    usage: usage.describe('Of its model calls'),
    preview,
    left: z.boolean().describe('A rewind has left it'),
    leftEvent: z.int().optional().describe('Number of the `rewound` that left it'),
    forks: z.array(fork).describe('Sessions that were forked at its end, oldest first, at most 20'),
    forksCut: z.boolean().describe('There may be more'),
  })
  .meta({ id: 'Turn' })

const shownUsage = { inputTokens: 5200, cacheReadTokens: 4000, cacheWriteTokens: 0, outputTokens: 900 }
const shownFile = { path: 'index.html', change: 'modified', isBinary: false, addedLines: 3, removedLines: 1 } as const

export const timeline = z
  .object({
    turns: z.array(turn).describe('One page, newest first'),
    nextCursor: z.string().nullable().describe('Value of `cursor` for the next page; null on the last'),
    undoCheckpointId: z
      .string()
      .nullable()
      .describe('A rewind to this checkpoint undoes the newest rewind; null without one, or when it is not kept'),
  })
  .meta({
    id: 'Timeline',
    examples: [
      {
        turns: [
          {
            messageId: ids.message,
            message: 'Make it blue',
            parentMessageId: null,
            firstEvent: 4,
            lastEvent: 19,
            startedAt: at.millisecond,
            endedAt: at.millisecond,
            durationMs: 8200,
            result: 'success',
            checkpoint: {
              id: ids.checkpoint,
              kind: 'full',
              sizeBytes: 91_226_112,
              durationMs: 240,
              afterEvent: 19,
              createdAt: at.millisecond,
            },
            files: { files: [shownFile], addedLines: 3, removedLines: 1, isCut: false },
            usage: shownUsage,
            preview: 'ready',
            left: false,
            forks: [],
            forksCut: false,
          },
        ],
        nextCursor: null,
        undoCheckpointId: null,
      },
    ],
  })

export const compareSessionQuery = ownerQuery.extend({
  against: z
    .string()
    .min(1)
    .max(200)
    .describe('What the session is compared with: a session, a checkpoint, or a message of the session')
    .meta({ examples: [ids.session] }),
})

/** Of both sides, where the other one is a session or a turn. */
function sides<Side extends z.ZodType>(side: Side, what: string) {
  const thisSide = side.describe('Of the session')
  return z
    .object({ this: thisSide, against: side.nullable().describe('Of the other side; null for a checkpoint') })
    .describe(what)
}

const shownPreview = { url: `https://${previewHost}`, state: 'ready' } as const

export const sessionComparison = z
  .object({
    against: z
      .object({
        type: z.enum(['session', 'checkpoint', 'message']).describe('What it is'),
        id: z.string().describe('Its id'),
      })
      .describe('The other side'),
    folder: z.string().describe('The working folder, whose files were compared'),
    files: z.array(fileChange).describe('By path, at most 1000'),
    addedLines: z.int().describe('Of all files, listed or not'),
    removedLines: z.int().describe('Of all files, listed or not'),
    isCut: z.boolean().describe('There are more files than are listed'),
    usage: sides(usage, 'What the model calls of the session, or of the turn, have used'),
    durationMs: sides(z.number().nullable(), 'How long the turns have taken; null while a turn runs'),
    preview: sides(
      z.object({
        url: z.string().nullable().describe('Where the preview is now; null for a turn'),
        state: preview.describe('Whether it answered at the end of the turn, or of the newest one; null: not known'),
      }),
      'What the session shows',
    ),
  })
  .meta({
    id: 'SessionComparison',
    examples: [
      {
        against: { type: 'session', id: ids.session },
        folder: '/workspace/app',
        files: [shownFile],
        addedLines: 3,
        removedLines: 1,
        isCut: false,
        usage: { this: shownUsage, against: shownUsage },
        durationMs: { this: 8200, against: 4100 },
        preview: { this: shownPreview, against: shownPreview },
      },
    ],
  })

export const estimateQuery = ownerQuery.extend({
  fork: z.coerce.number().int().min(1).max(20).optional().meta({ description: 'How many forks', default: 1 }),
})

export const forkEstimate = z
  .object({
    fork: z.int().describe('How many forks'),
    diskBytes: z
      .number()
      .nullable()
      .describe(
        'New bytes on disk for all of them together when they begin, at most: those of the one checkpoint from which all start, without what ' +
          'the newest one shares. While that is not counted, in its first minute for instance, its whole size. A fork adds what it writes. ' +
          'null: there is no checkpoint',
      ),
    checkpointBytes: z
      .number()
      .nullable()
      .describe('Size of the newest checkpoint, with what it shares; null: there is none'),
    memoryBytes: z
      .object({
        now: z
          .number()
          .nullable()
          .describe('What the sandbox of the session holds now, for each fork; null while it sleeps'),
        max: z.number().nullable().describe('The memory limit of the sandbox, for each fork; null without a sandbox'),
      })
      .describe('Memory of all of them together'),
    turns: z.int().describe('Turns that have ended, of which the means are'),
    tokensPerTurn: z
      .object({ input: z.int().describe('Read by the model'), output: z.int().describe('Written by the model') })
      .nullable()
      .describe('Means of one turn; null before the first has ended'),
    costPerTurnUsd: z
      .number()
      .optional()
      .describe('Mean of the turns whose cost is known, in US dollars; left out while there is none'),
    sessionsLeft: z
      .int()
      .nullable()
      .describe('How many more sessions the organisation may have at a time; null without a bound'),
  })
  .meta({
    id: 'ForkEstimate',
    examples: [
      {
        fork: 3,
        diskBytes: 61_865_984,
        checkpointBytes: 91_226_112,
        memoryBytes: { now: 402_653_184, max: 3_221_225_472 },
        turns: 4,
        tokensPerTurn: { input: 5200, output: 900 },
        costPerTurnUsd: 0.0291,
        sessionsLeft: null,
      },
    ],
  })
