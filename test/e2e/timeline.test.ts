/** What turns of a real session have changed, and how two states of it differ (docs/use/time-travel.md). */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { type StreamedEvent, readEvents } from './event-stream.ts'
import { AtollServer } from './server.ts'
import { createSession, endSession, lastId, sendMessage } from './session-client.ts'

const server = await AtollServer.startForFile({ env: { ATOLL_SESSION_CHECKPOINTS: 'turn' } })

const isSaved = ({ data }: StreamedEvent) => data.type === 'checkpoint_created'

interface Page {
  turns: {
    messageId: string
    files: { files: { path: string; change: string }[]; addedLines: number } | null
    checkpoint: { id: string; kind: string; sizeBytes: number } | null
    durationMs: number | null
    result: string
  }[]
}

test('timeline: each turn has its files and its checkpoint, and a patch says what came after', async () => {
  const session = await createSession(server, 'run: echo one >page.txt; echo x >both.txt')
  const events = await readEvents(server, session.id, isSaved)
  await sendMessage(server, session.id, 'run: echo two >>page.txt; rm both.txt')
  await readEvents(server, session.id, isSaved, lastId(events))
  const path = `/v1/sessions/${session.id}`
  const { turns } = await eventually(
    async () => {
      const page = (await server.json('GET', `${path}/timeline?user_id=ada`)) as Page
      assert.ok(page.turns.every(({ files }) => files !== null))
      return page
    },
    { what: 'the files of the turns' },
  )
  const changes = turns.map(({ files }) => files?.files.map((file) => `${file.change} ${file.path}`))
  assert.deepEqual(changes, [
    ['deleted both.txt', 'modified page.txt'],
    ['added both.txt', 'added page.txt'],
  ])
  assert.ok(
    turns.every(({ checkpoint, durationMs, result }) => checkpoint && durationMs !== null && result === 'success'),
  )
  const first = turns.at(-1)?.messageId
  const answer = await server.fetch(`${path}/diff?user_id=ada&against=${first}`, { headers: { accept: 'text/x-diff' } })
  assert.equal(answer.status, 200)
  assert.match(await answer.text(), /^diff --git a\/both.txt b\/both.txt\ndeleted file mode[^]*^\+two$/m)
  const estimate = (await server.json('GET', `${path}/estimate?user_id=ada&fork=3`)) as Record<string, number>
  assert.equal(estimate['turns'], 2)
  assert.ok(estimate['diskBytes']! > 0)
  assert.equal(estimate['diskBytes'], estimate['checkpointBytes'])
  await endSession(server, session.id)
  const ended = await server.json('GET', `${path}/diff?against=${first}`)
  assert.equal((ended as { removedLines: number }).removedLines, 1)
})
