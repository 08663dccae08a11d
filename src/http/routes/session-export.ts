import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { FairYield } from '../../lib/async/fair-yield.ts'
import { sessions as wire } from '../../protocol/http/index.ts'
import { eventText, type ExportRecord, type SessionExport } from '../../session/index.ts'
import { onceClosed } from '../server/once-closed.ts'
import { routesOf } from '../server/route.ts'
import { eventBody, messageBody, sessionBody } from '../server/session-view.ts'
import { exportCaps } from '../server/streams.ts'
import { milliseconds } from '../server/time.ts'

/** A client that takes nothing for this long is dropped. */
const stalledMs = 60_000
/** Size of one part. A line is as long as the longest message of an agent. */
const partBytes = 64 * 1024
/** Parts of all exports together between two yields. */
const parts = new FairYield(8)

const route = routesOf('Sessions', 'session')

export const sessionExportRoutes = [
  route('GET', '/v1/sessions/:sessionId/export', {
    id: 'exportSession',
    audited: true,
    summary: 'Export a session as JSON lines',
    description:
      'Each line has a `type`: first `session`, then each `message`, each `event`, and each event of the `stream` with its ' +
      'number, all under a key of that name (`stream` has `sequence`, `createdAt` and `data`).',
    query: wire.ownerQuery,
    answers: {
      200: {
        description: 'One JSON object a line',
        content: 'application/x-ndjson',
        example: '{"type":"session","session":{"id":"session_…",…}}\n{"type":"message","message":{…}}\n',
      },
    },
    async handle(call) {
      const { orgId, params, query, reply, deps, streams } = call
      const response = reply.raw
      onceClosed(response, streams.open('export', exportCaps(call)))
      const whole = await deps.sessions.export(orgId, params.sessionId, query.user_id)
      reply.hijack()
      response.setTimeout(stalledMs, () => response.destroy())
      response.writeHead(200, {
        ...(reply.getHeaders() as Record<string, string>),
        'content-type': 'application/x-ndjson; charset=utf-8',
        'cache-control': 'no-store',
        'content-disposition': `attachment; filename="${params.sessionId}.jsonl"`,
      })
      try {
        // The next line is read when the client has taken the last. A failure cuts the connection, so that no client takes a part for the whole.
        await pipeline(Readable.from(lines(whole), { highWaterMark: 1 }), response)
      } catch (error) {
        deps.log.debug({ err: error, sessionId: params.sessionId }, 'an export broke')
      } finally {
        response.setTimeout(0)
      }
      return undefined
    },
  }),
]

async function* lines({ view, records }: SessionExport): AsyncGenerator<Buffer> {
  const { messages: _messages, events: _events, ...session } = sessionBody(view)
  yield Buffer.from(`${JSON.stringify({ type: 'session', session })}\n`)
  for await (const record of records) yield* inParts(Buffer.from(`${recordText(record)}\n`))
}

async function* inParts(line: Buffer): AsyncGenerator<Buffer> {
  yield line.subarray(0, partBytes)
  for (let sent = partBytes; sent < line.length; sent += partBytes) {
    await parts.next()
    yield line.subarray(sent, sent + partBytes)
  }
}

function recordText(record: ExportRecord): string {
  if (record.type === 'message') return JSON.stringify({ type: 'message', message: messageBody(record.message) })
  if (record.type === 'event') return JSON.stringify({ type: 'event', event: eventBody(record.event) })
  const { sequence, createdAt } = record.event
  const head = JSON.stringify({ sequence, createdAt: milliseconds(createdAt) }).slice(0, -1)
  return `{"type":"stream","stream":${head},"data":${eventText(record.event)}}}`
}
