import { z } from 'zod'
import { fileChange } from './sandbox-trees.ts'
import { ids, showExample } from './examples.ts'
import { agentConfig, place, session, shownSession } from './sessions.ts'

const userId = z.string().min(1).max(256).describe('Your id of the owner')
export const rewind = z.object({
  user_id: userId,
  to: place.describe('Where the session goes. An event inside of a turn is refused'),
  what: z.enum(['all', 'machine', 'conversation']).default('all').describe('What is put back'),
})
showExample(rewind, { user_id: 'ada', to: { message_id: ids.message }, what: 'all' })

export const rewindQuery = z.object({
  preview: z.enum(['true', 'false']).optional().describe('`true`: tells what would change, and changes nothing'),
})

const processes = z
  .enum(['restored', 'ended', 'kept'])
  .describe('Processes of that time run again, all have ended, or those of the present run on')
const restoredPrompt = z.string().nullable().describe('The first message that was left, to be edited and sent again')

export const rewound = z
  .object({
    session: session.describe('The session, there by now'),
    restoredPrompt,
    undoCheckpointId: z.string().describe('A rewind to this checkpoint undoes it'),
    processes,
  })
  .meta({
    id: 'Rewound',
    examples: [
      {
        session: shownSession,
        restoredPrompt: 'Make it blue',
        undoCheckpointId: ids.checkpoint,
        processes: 'restored',
      },
    ],
  })

export const rewindPreview = z
  .object({
    checkpointId: z.string().describe('The checkpoint that it would go to'),
    toEvent: z.int().describe('Number of the newest event there'),
    files: z
      .object({
        files: z.array(fileChange).describe('By path'),
        addedLines: z.int().describe('Of all files'),
        removedLines: z.int().describe('Of all files'),
        isCut: z.boolean().describe('There are more files than are listed'),
      })
      .nullable()
      .describe('How files of the working folder would change; null where none do or disks cannot be read'),
    turnsLeft: z.array(z.string()).describe('Messages whose turns would be left, newest first'),
    tokensLeft: z.int().describe('Tokens that those turns have used'),
    queuedMessages: z.int().describe('Messages that wait, and would be cancelled'),
    interrupts: z.boolean().describe('A turn runs, and would be interrupted'),
    processes,
    processesEnded: z
      .array(z.string())
      .nullable()
      .describe('Commands of processes that would end; null while the sandbox sleeps'),
    restoredPrompt,
  })
  .meta({
    id: 'RewindPreview',
    examples: [
      {
        checkpointId: ids.checkpoint,
        toEvent: 12,
        files: { files: [], addedLines: 0, removedLines: 0, isCut: false },
        turnsLeft: [ids.message],
        tokensLeft: 900,
        queuedMessages: 0,
        interrupts: false,
        processes: 'restored',
        processesEnded: ['node server.js'],
        restoredPrompt: 'Make it blue',
      },
    ],
  })

export const rewindAnswer = z.union([rewound, rewindPreview])

export const adopt = z.object({
  user_id: userId,
  from: z.string().min(1).max(200).describe('Id of the fork whose state becomes that of the session'),
})
showExample(adopt, { user_id: 'ada', from: ids.session })

export const changeSession = z.object({
  user_id: userId,
  agent_config: agentConfig
    .pick({ max_tokens: true, max_cost_usd: true, checkpoints: true, secret_envs: true, capsule_on_error: true })
    .describe('What changes'),
})
showExample(changeSession, { user_id: 'ada', agent_config: { max_tokens: 2_000_000 } })
