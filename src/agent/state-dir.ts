import { closeSync, fstatSync, fsyncSync, mkdirSync, openSync, readFileSync, writeSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'

const entrySchema = z.object({
  messageId: z.string(),
  state: z.enum(['started', 'finished']),
  sessionId: z.string(),
})

type Entry = z.output<typeof entrySchema>

type TurnState = 'new' | 'started' | 'finished'

/**
 * What became of each message, in `turns.jsonl` of the state folder: a message is `new`, then `started`, then `finished`.
 * Written through to the disk before it counts, so that a repeated message is neither lost nor done twice.
 */
export class TurnJournal {
  readonly #file: number
  readonly #entries = new Map<string, Entry>()

  constructor(stateDir: string) {
    mkdirSync(stateDir, { recursive: true })
    const path = join(stateDir, 'turns.jsonl')
    this.#file = openSync(path, 'a+', 0o600)
    const text = readFileSync(path, 'utf8')
    for (const line of text.split('\n')) this.#load(line)
    // A kill in the middle of a write leaves a torn line; the next one must not be glued to it.
    if (text !== '' && !text.endsWith('\n')) writeSync(this.#file, '\n')
  }

  state(messageId: string): TurnState {
    return this.#entries.get(messageId)?.state ?? 'new'
  }

  /** The harness's id of the conversation in which the message was dealt with. */
  sessionId(messageId: string): string {
    return this.#entries.get(messageId)?.sessionId ?? ''
  }

  /**
   * When the last entry was written, by the clock of the file system: a file that is made later is never older, which the
   * clock of the process does not promise. While a turn runs it is its start, also after a kill.
   */
  get writtenMs(): number {
    return fstatSync(this.#file).mtimeMs
  }

  start(messageId: string, sessionId: string): void {
    this.#append({ messageId, state: 'started', sessionId })
  }

  finish(messageId: string, sessionId: string): void {
    this.#append({ messageId, state: 'finished', sessionId })
  }

  close(): void {
    closeSync(this.#file)
  }

  #append(entry: Entry): void {
    writeSync(this.#file, `${JSON.stringify(entry)}\n`)
    fsyncSync(this.#file)
    this.#entries.set(entry.messageId, entry)
  }

  #load(line: string): void {
    try {
      const entry = entrySchema.parse(JSON.parse(line))
      this.#entries.set(entry.messageId, entry)
    } catch {
      // The torn or foreign line of a process that was killed: its turn counts as not started.
    }
  }
}

const savedSchema = z.object({ sessionId: z.string() })

/** The id that an agent program has given its conversation, in `<stateDir>/<harness>/session.json`. */
export class SavedSession {
  readonly #file: string

  constructor(stateDir: string, harness: string) {
    const folder = join(stateDir, harness)
    mkdirSync(folder, { recursive: true })
    this.#file = join(folder, 'session.json')
  }

  read(): string | undefined {
    try {
      return savedSchema.parse(JSON.parse(readFileSync(this.#file, 'utf8'))).sessionId
    } catch {
      // There is none yet, or the write of it was cut off.
      return undefined
    }
  }

  write(sessionId: string): void {
    writeFileSync(this.#file, JSON.stringify({ sessionId }))
  }
}
