import { z } from 'zod'
import { at, previewHost } from './examples.ts'
import { secondTime } from './common.ts'

export const listeners = z.array(
  z
    .object({
      port: z.int().describe('TCP port'),
      url: z.string().describe('Address under which a preview of the port answers'),
      address: z.string().describe('Address to which it is bound, such as `127.0.0.1`'),
      pid: z.int().optional().describe('The process that listens, where it is known'),
      command: z.string().optional().describe('Its arguments, joined by spaces; at most 256 characters'),
    })
    .meta({
      id: 'ListeningPort',
      examples: [{ port: 3000, url: `https://${previewHost}/`, address: '127.0.0.1' }],
    }),
)

export const processes = z.array(
  z
    .object({
      pid: z.int().describe('Its number in the sandbox'),
      parentPid: z.int().describe('Number of its parent; 0 when that is outside'),
      user: z.string().describe('Name of its user in the sandbox, or the number'),
      command: z
        .string()
        .describe('Its arguments, joined by spaces; at most 256 characters. What is not text is U+FFFD'),
      state: z
        .enum(['running', 'sleeping', 'waiting', 'stopped', 'zombie', 'unknown'])
        .describe('`waiting` is for a disk; a `zombie` has ended'),
      memoryBytes: z.int().describe('Resident memory, in bytes'),
      cpuSeconds: z.number().describe('Processor time that it has used, in seconds'),
      startedAt: secondTime.describe('When it was started'),
    })
    .meta({
      id: 'SystemProcess',
      examples: [
        {
          pid: 42,
          parentPid: 1,
          user: 'root',
          command: 'node server.js',
          state: 'sleeping',
          memoryBytes: 52_428_800,
          cpuSeconds: 0.3,
          startedAt: at.second,
        },
      ],
    }),
)

export const signalQuery = z.object({
  signal: z.coerce.number().int().min(1).max(64).optional().meta({ description: 'Number of the signal', default: 15 }),
})
