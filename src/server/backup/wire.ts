/**
 * What `npm run backup` and a running server say to each other, over a socket that only root may enter: one JSON text a line, and one answer
 * to each request.
 *
 *     cut ──► copies by the program ──► release (of the database) ──► keep ──► its manifest ──► drop
 *
 * The end of the connection at any moment takes back what is not kept.
 */
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { z } from 'zod'
import { errorCodes, ServiceError } from '../../errors.ts'
import { HostNames } from '../../runtime/host-names.ts'

const lineBytesMax = 512 * 1024 * 1024

/** The socket at which the server of a data directory takes backups. */
export function backupSocket(dataDir: string): string {
  return join(new HostNames(dataDir).runDir, 'backup.sock')
}

const id = z.string().regex(/^[0-9a-f]{16}$/)
export const copiedSchema = z.object({ id, uuid: z.string(), generation: z.number() })

export const requestSchema = z.discriminatedUnion('do', [
  z.object({ do: z.literal('cut'), last: z.record(z.string(), copiedSchema) }),
  z.object({ do: z.literal('release') }),
  z.object({ do: z.literal('keep') }),
  z.object({ do: z.literal('drop'), but: z.array(id) }),
])
export type Request = z.infer<typeof requestSchema>

export const cutAnswerSchema = z.object({
  cut: z.object({
    subvolumes: z.array(
      copiedSchema.extend({
        path: z.string(),
        isReadOnly: z.boolean(),
        parentUuid: z.string().optional(),
        limitBytes: z.number().optional(),
        createdIn: z.number(),
        isNew: z.boolean(),
      }),
    ),
    records: z.array(z.object({ path: z.string(), text: z.string() })),
    kept: z.array(z.string()),
    folder: z.string(),
  }),
  database: z.object({ databaseUrl: z.string(), id: z.string(), major: z.number() }),
  heldMs: z.number(),
})
export type CutAnswer = z.infer<typeof cutAnswerSchema>

const errorSchema = z.object({ error: z.object({ code: z.enum(errorCodes), message: z.string() }) })

/** Returns an answer; throws the error that it reports. */
export function okOf(answer: unknown): unknown {
  const { data } = errorSchema.safeParse(answer)
  if (data !== undefined) throw new ServiceError(data.error.code, data.error.message)
  return answer
}

/** The JSON texts that a peer sends. Throws when a line is longer than any that is ours. */
export async function* messages(socket: Socket): AsyncGenerator {
  socket.setEncoding('utf8')
  let rest = ''
  for await (const chunk of socket as AsyncIterable<string>) {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop() ?? ''
    if (rest.length > lineBytesMax) throw new Error('a line of a backup is too long')
    for (const line of lines) yield JSON.parse(line)
  }
}

export function say(socket: Socket, message: object): void {
  socket.write(`${JSON.stringify(message)}\n`)
}
