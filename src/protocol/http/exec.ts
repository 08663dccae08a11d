import { z } from 'zod'
import { at, ids, showExample } from './examples.ts'
import { envs, secondTime, timeoutSecondsMax, user } from './common.ts'

const seconds = z.int().min(0).max(timeoutSecondsMax)
const command = {
  cmd: z.string().min(1).describe('Without `args`, a `cmd` with a space runs under `sh -c`'),
  args: z.array(z.string()).optional().describe('Arguments of `cmd`, passed as they are'),
  envs: envs.optional(),
  cwd: z.string().optional().describe('Working directory; absolute'),
  user: user.optional().describe('Default that of the sandbox'),
}

export const runCommand = z.object({
  ...command,
  timeout: seconds.optional().meta({ description: 'Seconds until it is killed; 0: none', default: 60 }),
})
showExample(runCommand, { cmd: 'echo', args: ['hello'], timeout: 10 })

const timedOut = z
  .literal(true)
  .optional()
  .describe('The timeout ended it; without this, 124 is an exit status of its own')

export const runResult = z
  .object({
    exitCode: z.int().describe('Exit status; 128 and the signal when one ended it, 124 after the timeout'),
    timedOut,
    stdout: z.string().describe('Standard output as UTF-8'),
    stderr: z.string().describe('Standard error as UTF-8'),
    truncated: z.literal(true).optional().describe('A stream passed 8 MiB and lost its beginning'),
  })
  .meta({ id: 'RunResult', examples: [{ exitCode: 0, stdout: 'hello\n', stderr: '' }] })

export const runHandle = z
  .object({ execId: z.string().describe('Id of the command, for its result') })
  .meta({ id: 'RunHandle', examples: [{ execId: ids.exec }] })

export const resultQuery = z.object({
  wait: z.coerce.number().min(0).max(1).optional().meta({ description: 'Seconds to wait for the end', default: 1 }),
})

export const runState = z
  .object({
    running: z.boolean().describe('Whether it has not ended'),
    exitCode: z.int().optional().describe('Exit status, once it has ended'),
    timedOut,
    stdout: z.string().describe('Standard output so far, as UTF-8'),
    stderr: z.string().describe('Standard error so far, as UTF-8'),
    truncated: z.literal(true).optional().describe('A stream passed 8 MiB and lost its beginning'),
    error: z.string().optional().describe('What went wrong'),
  })
  .meta({ id: 'RunState', examples: [{ running: false, exitCode: 0, stdout: 'hello\n', stderr: '' }] })

export const startExec = z.object({
  ...command,
  timeout: seconds.optional().describe('Seconds, default none'),
  maxRunAfterDisconnect: seconds
    .optional()
    .describe('Seconds without an attached client after which it is killed; 0 or absent: never'),
})
showExample(startExec, { cmd: 'sh', args: ['-c', 'read line; echo "$line"'] })

export const execSession = z
  .object({
    sessionID: z.string().describe('Id of the exec session, `es-…`; of a terminal, `ps-…`'),
    sandboxID: z.string().describe('The sandbox in which it runs'),
    command: z.string().describe('The program'),
    args: z.array(z.string()).describe('Its arguments'),
    running: z.boolean().describe('Whether it has not ended'),
    exitCode: z.int().nullable().describe('Exit status; null while it runs'),
    timedOut,
    startedAt: secondTime.describe('When it was started'),
    attachedClients: z.int().describe('WebSockets attached to it now'),
  })
  .meta({
    id: 'ExecSession',
    examples: [
      {
        sessionID: ids.exec,
        sandboxID: ids.sandbox,
        command: 'sh',
        args: ['-c', 'read line; echo "$line"'],
        running: true,
        exitCode: null,
        startedAt: at.second,
        attachedClients: 0,
      },
    ],
  })

export const attachQuery = z.object({
  api_key: z.string().optional().describe('The API key, for clients that cannot set headers'),
  offset: z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number of bytes')
    .optional()
    .describe('Absolute byte offset in the log of both streams'),
})

export const killExec = z.object({
  signal: z.int().min(1).max(64).default(9).describe('Number of the signal'),
})
showExample(killExec, { signal: 15 })

const cells = z.int().min(1).max(4096)
export const startPty = z.object({
  cols: cells.default(80).describe('Columns'),
  rows: cells.default(24).describe('Rows'),
  shell: z.string().min(1).optional().meta({ description: 'Absolute path of the program', default: '/bin/bash' }),
  args: z.array(z.string()).optional().describe('Its arguments, none by default'),
  cwd: z.string().optional().describe('Working directory; absolute'),
  envs: envs.optional(),
  user: user.optional().describe('Default that of the sandbox'),
})
showExample(startPty, { cols: 120, rows: 40, shell: '/bin/sh' })
export const ptySession = z
  .object({
    sessionID: z.string().describe('Id of the terminal, `ps-…`'),
    sandboxID: z.string().describe('The sandbox in which it runs'),
  })
  .meta({ id: 'PtySession', examples: [{ sessionID: ids.terminal, sandboxID: ids.sandbox }] })
export const resizePty = z.object({
  cols: cells.describe('Columns'),
  rows: cells.describe('Rows'),
})
showExample(resizePty, { cols: 100, rows: 30 })
