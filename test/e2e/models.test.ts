import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startDemoModel } from '../../src/gateway/index.ts'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { askPreview } from './preview.ts'
import { AtollServer } from './server.ts'

// The demo model speaks both wires; here it stands for somebody else's server, reached over the network by its base URL.
const providers = [
  { provider: 'anthropic', variable: 'ANTHROPIC_BASE_URL', path: '' },
  { provider: 'openai', variable: 'OPENAI_BASE_URL', path: '/v1' },
]

for (const { provider, variable, path } of providers) {
  test(`a compatible server behind ${variable} builds the page just as well`, async () => {
    await using opened = new AsyncDisposableStack()
    const model = opened.adopt(await startDemoModel(), (started) => started.close())
    const env = { [variable]: model.baseUrl + path, ATOLL_MODEL: `${provider}/some-model` }
    await using server = await AtollServer.start({ env })
    const session = (await server.json('POST', '/v1/sessions', { prompt: 'A page about tides', user_id: 'ada' })) as {
      id: string
      previewUrl: string
    }
    const events = await readEvents(server, session.id, isTurnComplete)
    const configured = events.find((event) => event.data.type === 'configured')
    assert.match(String(configured?.data['model']), /some-model/)
    const result = events.find((event) => event.data.type === 'result')
    assert.equal(result?.data['subtype'], 'success', JSON.stringify(events))
    assert.match((await askPreview(server, new URL(session.previewUrl).host)).body, /tides/i)
    await server.json('DELETE', `/v1/sessions/${session.id}`)
  })
}
