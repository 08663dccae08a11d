import { z } from 'zod'
import { envs, secondTime, timeoutSecondsMax } from './common.ts'

const seconds = z.int().min(0).max(timeoutSecondsMax)
const command = {
  cmd: z.string().min(1).meta({ description: 'Without `args`, a `cmd` with a space runs under `sh -c`' }),
  args: z.array(z.string()).optional(),
  envs: envs.optional(),
  cwd: z.string().optional(),
  user: z.string().optional().meta({ description: 'Default root' }),
}

export const runCommand = z.object({
  ...command,
  timeout: seconds.optional().meta({ description: 'Seconds, default 60' }),
})

export const runResult = z
  .object({
    exitCode: z.int(),
    stdout: z.string(),
    stderr: z.string(),
    truncated: z.literal(true).optional().meta({ description: 'A stream passed 8 MiB and lost its beginning' }),
  })
  .meta({ id: 'RunResult' })

export const runHandle = z.object({ execId: z.string() }).meta({ id: 'RunHandle' })

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
    running: z.boolean(),
    exitCode: z.int().optional(),
    stdout: z.string(),
    stderr: z.string(),
    truncated: z.literal(true).optional(),
    error: z.string().optional(),
  })
  .meta({ id: 'RunState' })

export const startExec = z.object({
  ...command,
  timeout: seconds.optional().meta({ description: 'Seconds, default none' }),
  maxRunAfterDisconnect: seconds.optional(),
})

export const execSession = z
  .object({
    sessionID: z.string(),
    sandboxID: z.string(),
    command: z.string(),
    args: z.array(z.string()),
    running: z.boolean(),
    exitCode: z.int().nullable(),
    startedAt: secondTime,
    attachedClients: z.int(),
  })
  .meta({ id: 'ExecSession' })

export const attachQuery = z.object({
  api_key: z.string().optional(),
  offset: z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number of bytes')
    .optional()
    .meta({ description: 'Absolute byte offset in the log of both streams' }),
})

export const killExec = z.object({ signal: z.int().min(1).max(64).default(9) })

const cells = z.int().min(1).max(4096)
export const startPty = z.object({
  cols: cells.default(80),
  rows: cells.default(24),
  shell: z.string().min(1).optional(),
  cwd: z.string().optional(),
  envs: envs.optional(),
  user: z.string().optional(),
})
export const ptySession = z.object({ sessionID: z.string(), sandboxID: z.string() }).meta({ id: 'PtySession' })
export const resizePty = z.object({ cols: cells, rows: cells })
