/** Answers as the model writes them, in the stream of a real session. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { isTurnComplete, readEvents, type StreamedEvent } from './event-stream.ts'
import { AtollServer } from './server.ts'
import { createSession, endSession, errors, resultOf, wholeStream } from './session-client.ts'
import { WritingModel } from '../agent/writing-model.ts'

const written = ['Coral reefs ', 'are 🐚 ', 'alive.']
const model = await WritingModel.start(written)
const server = await AtollServer.startForFile({
  env: { ANTHROPIC_BASE_URL: model.baseUrl, ATOLL_MODEL: 'anthropic/some-model', ATOLL_SESSION_CHECKPOINTS: 'none' },
})
after(() => model[Symbol.asyncDispose]())

const isConfigured = ({ data }: StreamedEvent) => data.type === 'configured'

/** A client that asks for drafts, and reads on when it is told to. */
async function draftsOf(id: string) {
  const response = await fetch(`${server.url}/v1/sessions/${id}/events?drafts=true&api_key=${server.key}`)
  const reader = response.body!.getReader()
  let text = ''
  return {
    async until(part: string) {
      while (!text.includes(part)) text += Buffer.from((await reader.read()).value ?? []).toString()
    },
    /** The pieces of drafts, each without a number. */
    pieces: () =>
      text
        .split('\n\n')
        .filter((event) => event.startsWith('data: {"type":"assistant_draft"'))
        .map((event) => JSON.parse(event.slice('data: '.length)) as { offset: number; text: string }),
    close: () => reader.cancel(),
  }
}

test('drafts: they are in no stream that did not ask for them, and in none that comes later', async () => {
  const { id } = await createSession(server, 'Tell me about reefs')
  const plain = readEvents(server, id, isTurnComplete)
  const drafts = await draftsOf(id)
  await drafts.until('"type":"configured"')
  for (const part of written) {
    model.writeOn()
    await drafts.until(`"text":${JSON.stringify(part)}}`)
  }
  model.writeOn()
  await drafts.until('"type":"turn_complete"')
  await drafts.close()
  let offset = 0
  for (const piece of drafts.pieces()) {
    assert.equal(piece.offset, offset)
    offset += piece.text.length
  }
  assert.equal(offset, written.join('').length)
  const seen = (await plain).map(({ data }) => data.type)
  assert.ok(!seen.includes('assistant_draft') && seen.filter((type) => type === 'assistant').length === 1)
  const again = await wholeStream(server, id, 1)
  assert.deepEqual(
    again.map(({ data }) => data.type),
    seen,
  )
  assert.equal(resultOf(again)?.['result'], written.join(''))
  await endSession(server, id)
})

test('drafts: a server that is killed while an answer is written loses nothing of the turn', async () => {
  const { id } = await createSession(server, 'Tell me more')
  await readEvents(server, id, isConfigured)
  const before = await draftsOf(id)
  model.writeOn()
  await before.until(`"text":${JSON.stringify(written[0])}}`)
  model.writeOn()
  await before.until(`"text":${JSON.stringify(written[1])}}`)
  await server.kill()
  await server.restart()
  // The agent asks the model again, by the new server.
  for (const _ of [...written, 'the end']) model.writeOn()
  const events = await wholeStream(server, id, 1)
  assert.deepEqual(errors(events), [])
  assert.deepEqual([resultOf(events)?.['subtype'], resultOf(events)?.['result']], ['success', written.join('')])
  await endSession(server, id)
})
