import type { AgentEvent, Message, Session } from '../../../sdk/src/index.ts'
import { bold, printable, writeJson, writeLine } from '../output.ts'
import { toldBy } from './words.ts'

/** Prints what was said and done so far, and returns the number of the newest event. */
export async function printLog(session: Session, isJson: boolean): Promise<number> {
  const log = new Log()
  let last = 0
  for await (const record of session.export()) {
    if (record.type === 'message') log.messages.push(record.message)
    if (record.type !== 'stream') continue
    const { sequence, data } = record.stream
    last = sequence
    if (isJson) await writeJson({ sequence, data })
    else await log.add(data)
  }
  if (!isJson) await log.end()
  return last
}

/**
 * Puts each message of a user before the turn that answers it: the stream names a message with the end of its turn alone. Messages without a
 * turn in the stream, such as those of the source of a fork, are told by themselves.
 */
class Log {
  readonly messages: Message[] = []
  /** The turn under way, which the server bounds. */
  #turn: string[] = []

  async add(event: AgentEvent): Promise<void> {
    const { words, fact } = toldBy(event)
    if (words !== undefined) this.#turn.push(printable(words))
    if (fact !== undefined) this.#turn.push(printable(`· ${fact}`))
    if (event.type !== 'turn_complete') return
    const at = this.messages.findIndex(({ id }) => id === event.message_id)
    await this.#printMessages(at + 1)
    // The stream has said them.
    while (this.messages[0]?.role === 'assistant') this.messages.shift()
    await this.#printTurn()
  }

  async end(): Promise<void> {
    const current = this.messages.findIndex(({ state }) => state === 'started')
    await this.#printMessages(current + 1)
    await this.#printTurn()
    await this.#printMessages(this.messages.length)
  }

  async #printMessages(count: number): Promise<void> {
    for (const { role, content, state } of this.messages.splice(0, count)) {
      const how = state === 'queued' ? ' (waits)' : state === 'cancelled' ? ' (taken back)' : ''
      await writeLine(role === 'user' ? bold(`> ${printable(content)}${how}`) : printable(content))
    }
  }

  async #printTurn(): Promise<void> {
    for (const line of this.#turn.splice(0)) await writeLine(line)
  }
}
