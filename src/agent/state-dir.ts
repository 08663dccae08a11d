import { closeSync, fstatSync, fsyncSync, mkdirSync, openSync, readFileSync, writeSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'

const entrySchema = z.object({
  messageId: z.string(),
  state: z.enum(['started', 'finished']),
  sessionId: z.string(),
})

type Entry = z.output<typeof entrySchema>

/**
 * The state of each message: `new`, then `started`, then `finished`. Each entry of `turns.jsonl` is synced to the disk before it counts,
 * so a repeated message is neither lost nor run twice.
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
    // A kill during a write leaves a torn line; the next entry must not continue it.
    if (text !== '' && !text.endsWith('\n')) writeSync(this.#file, '\n')
  }

  state(messageId: string): 'new' | Entry['state'] {
    return this.#entries.get(messageId)?.state ?? 'new'
  }

  /** The harness's id of the conversation of the message. */
  sessionId(messageId: string): string {
    return this.#entries.get(messageId)?.sessionId ?? ''
  }

  /** The time of the last entry, which is the start of a running turn. By the clock of the file system, so later files are never older. */
  get writtenMs(): number {
    return fstatSync(this.#file).mtimeMs
  }

  write(entry: Entry): void {
    writeSync(this.#file, `${JSON.stringify(entry)}\n`)
    fsyncSync(this.#file)
    this.#entries.set(entry.messageId, entry)
  }

  close(): void {
    closeSync(this.#file)
  }

  #load(line: string): void {
    try {
      const entry = entrySchema.parse(JSON.parse(line))
      this.#entries.set(entry.messageId, entry)
    } catch {
      // A torn line of a killed process: its turn counts as not started.
    }
  }
}

const savedSchema = z.object({ sessionId: z.string() })

/** The id that an agent program gave its conversation, in `<stateDir>/<harness>/session.json`. */
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
      // The file does not exist yet, or its write was interrupted.
      return undefined
    }
  }

  write(sessionId: string): void {
    writeFileSync(this.#file, JSON.stringify({ sessionId }))
  }
}
