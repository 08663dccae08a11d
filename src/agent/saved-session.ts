import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'

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
