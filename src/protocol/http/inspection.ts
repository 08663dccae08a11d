import { z } from 'zod'
import { secondTime } from './common.ts'

export const listeners = z.array(
  z
    .object({
      port: z.int().meta({ description: 'TCP port' }),
      url: z.string().meta({ description: 'Address under which a preview of the port answers' }),
      address: z.string().meta({ description: 'Address to which it is bound, such as `127.0.0.1`' }),
      pid: z.int().optional().meta({ description: 'The process that listens, where it is known' }),
      command: z.string().optional().meta({ description: 'Its arguments, joined by spaces; at most 256 characters' }),
    })
    .meta({ id: 'ListeningPort' }),
)

export const processes = z.array(
  z
    .object({
      pid: z.int().meta({ description: 'Its number in the sandbox' }),
      parentPid: z.int().meta({ description: 'Number of its parent; 0 when that is outside' }),
      user: z.string().meta({ description: 'Name of its user in the sandbox, or the number' }),
      command: z.string().meta({
        description: 'Its arguments, joined by spaces; at most 256 characters. What is not text is U+FFFD',
      }),
      state: z
        .enum(['running', 'sleeping', 'waiting', 'stopped', 'zombie', 'unknown'])
        .meta({ description: '`waiting` is for a disk; a `zombie` has ended' }),
      memoryBytes: z.int().meta({ description: 'Resident memory, in bytes' }),
      cpuSeconds: z.number().meta({ description: 'Processor time that it has used, in seconds' }),
      startedAt: secondTime.meta({ description: 'When it was started' }),
    })
    .meta({ id: 'SystemProcess' }),
)

export const signalQuery = z.object({
  signal: z.coerce.number().int().min(1).max(64).optional().meta({ description: 'Number of the signal, default 15' }),
})
