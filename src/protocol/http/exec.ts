import { z } from 'zod'
import { envs, secondTime, timeoutSecondsMax, user } from './common.ts'

const seconds = z.int().min(0).max(timeoutSecondsMax)
const command = {
  cmd: z.string().min(1).meta({ description: 'Without `args`, a `cmd` with a space runs under `sh -c`' }),
  args: z.array(z.string()).optional().meta({ description: 'Arguments of `cmd`, passed as they are' }),
  envs: envs.optional(),
  cwd: z.string().optional().meta({ description: 'Working directory; absolute' }),
  user: user.optional().meta({ description: 'Default that of the sandbox' }),
}

export const runCommand = z.object({
  ...command,
  timeout: seconds.optional().meta({ description: 'Seconds, default 60' }),
})

const timedOut = z
  .literal(true)
  .optional()
  .meta({ description: 'The timeout ended it; without this, 124 is an exit status of its own' })

export const runResult = z
  .object({
    exitCode: z.int().meta({ description: 'Exit status; 128 and the signal when one ended it, 124 after the timeout' }),
    timedOut,
    stdout: z.string().meta({ description: 'Standard output as UTF-8' }),
    stderr: z.string().meta({ description: 'Standard error as UTF-8' }),
    truncated: z.literal(true).optional().meta({ description: 'A stream passed 8 MiB and lost its beginning' }),
  })
  .meta({ id: 'RunResult' })

export const runHandle = z
  .object({ execId: z.string().meta({ description: 'Id of the command, for its result' }) })
  .meta({ id: 'RunHandle' })

export const resultQuery = z.object({
  wait: z.coerce
    .number()
    .min(0)
    .max(1)
    .optional()
    .meta({ description: 'Seconds to wait for the end, default and at most 1' }),
})

export const runState = z
  .object({
    running: z.boolean().meta({ description: 'Whether it has not ended' }),
    exitCode: z.int().optional().meta({ description: 'Exit status, once it has ended' }),
    timedOut,
    stdout: z.string().meta({ description: 'Standard output so far, as UTF-8' }),
    stderr: z.string().meta({ description: 'Standard error so far, as UTF-8' }),
    truncated: z.literal(true).optional().meta({ description: 'A stream passed 8 MiB and lost its beginning' }),
    error: z.string().optional().meta({ description: 'What went wrong' }),
  })
  .meta({ id: 'RunState' })

export const startExec = z.object({
  ...command,
  timeout: seconds.optional().meta({ description: 'Seconds, default none' }),
  maxRunAfterDisconnect: seconds
    .optional()
    .meta({ description: 'Seconds without an attached client after which it is killed; 0 or absent: never' }),
})

export const execSession = z
  .object({
    sessionID: z.string().meta({ description: 'Id of the exec session, `es-…`' }),
    sandboxID: z.string().meta({ description: 'The sandbox in which it runs' }),
    command: z.string().meta({ description: 'The program' }),
    args: z.array(z.string()).meta({ description: 'Its arguments' }),
    running: z.boolean().meta({ description: 'Whether it has not ended' }),
    exitCode: z.int().nullable().meta({ description: 'Exit status; null while it runs' }),
    timedOut,
    startedAt: secondTime.meta({ description: 'When it was started' }),
    attachedClients: z.int().meta({ description: 'WebSockets attached to it now' }),
  })
  .meta({ id: 'ExecSession' })

export const attachQuery = z.object({
  api_key: z.string().optional().meta({ description: 'The API key, for clients that cannot set headers' }),
  offset: z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number of bytes')
    .optional()
    .meta({ description: 'Absolute byte offset in the log of both streams' }),
})

export const killExec = z.object({
  signal: z.int().min(1).max(64).default(9).meta({ description: 'Number of the signal' }),
})

const cells = z.int().min(1).max(4096)
export const startPty = z.object({
  cols: cells.default(80).meta({ description: 'Columns' }),
  rows: cells.default(24).meta({ description: 'Rows' }),
  shell: z.string().min(1).optional().meta({ description: 'Absolute path of the program, default `/bin/bash`' }),
  cwd: z.string().optional().meta({ description: 'Working directory; absolute' }),
  envs: envs.optional(),
  user: user.optional().meta({ description: 'Default that of the sandbox' }),
})
export const ptySession = z
  .object({
    sessionID: z.string().meta({ description: 'Id of the terminal, `ps-…`' }),
    sandboxID: z.string().meta({ description: 'The sandbox in which it runs' }),
  })
  .meta({ id: 'PtySession' })
export const resizePty = z.object({
  cols: cells.meta({ description: 'Columns' }),
  rows: cells.meta({ description: 'Rows' }),
})
