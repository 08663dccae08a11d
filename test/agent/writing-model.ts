import type { ServerResponse } from 'node:http'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { answerEvents, fakeAnthropic, sendEvents } from './fake-anthropic.ts'

/** A model that writes its answers part by part, each when it is told to. */
export class WritingModel implements AsyncDisposable {
  readonly #parts: readonly string[]
  #api: Awaited<ReturnType<typeof fakeAnthropic>> | undefined
  #granted = 0
  #used = 0

  private constructor(parts: readonly string[]) {
    this.#parts = parts
  }

  static async start(parts: readonly string[]): Promise<WritingModel> {
    const model = new WritingModel(parts)
    model.#api = await fakeAnthropic((_body, response) => {
      void model.#answer(response)
      return true
    })
    return model
  }

  get baseUrl(): string {
    return this.#api!.url
  }

  /** It writes the next part of its answer, and after the last one its end. */
  writeOn(): void {
    this.#granted += 1
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#api?.[Symbol.asyncDispose]()
  }

  async #answer(response: ServerResponse): Promise<void> {
    const [start, open, , close, ...end] = answerEvents
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    sendEvents(response, [start!, open!])
    for (const text of this.#parts) {
      if (!(await this.#mayWriteOn(response))) return
      sendEvents(response, [textDelta(text)])
    }
    if (!(await this.#mayWriteOn(response))) return
    sendEvents(response, [close!, ...end])
    response.end()
  }

  /** False when who asked has gone: the next part is for another one. */
  async #mayWriteOn(response: ServerResponse): Promise<boolean> {
    await eventually(() => response.closed || this.#granted > this.#used)
    if (response.closed) return false
    this.#used += 1
    return true
  }
}

const textDelta = (text: string) => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })
