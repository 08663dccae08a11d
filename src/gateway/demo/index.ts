import { LLMock, type ChatCompletionRequest, type FixtureResponse } from '@copilotkit/aimock'
import { answerDemo } from './answer.ts'
import { readConversation } from './conversation.ts'

export interface DemoModel {
  /** Without a path; Anthropic's wire at `/v1/messages`, OpenAI's at `/v1/chat/completions` and `/v1/responses`. */
  baseUrl: string
  close(): Promise<void>
}

/** Requests that the mock keeps for inspection. None are inspected, and 0 would mean all. */
const journalEntries = 1

/** Characters per chunk of a streamed answer. */
const chunkCharacters = 400

/**
 * A deterministic model that builds and edits a small web page with real tool calls. Its answer depends on the messages of the request
 * alone, so any number of sessions can use it and a restart of the server changes nothing. `pagePort` is the port of the page inside the
 * sandbox; 3000 is that of the session's preview.
 */
export async function startDemoModel({ pagePort = 3000 } = {}): Promise<DemoModel> {
  const mock = new LLMock({
    host: '127.0.0.1',
    port: 0,
    chunkSize: chunkCharacters,
    journalMaxEntries: journalEntries,
    fixtureCountsMaxTestIds: journalEntries,
  })
  mock.on({}, (request: ChatCompletionRequest): FixtureResponse => answerDemo(readConversation(request), pagePort))
  await mock.start()
  return { baseUrl: mock.url.replace(/\/+$/, ''), close: () => mock.stop() }
}
