import { randomBytes } from 'node:crypto'
import { link, open, readFile, rename, unlink } from 'node:fs/promises'
import { dirname } from 'node:path'
import { ServiceError } from '../errors.ts'
import { syncFolder } from '../lib/sync-folder.ts'
import { readKeys, type SealingKey } from './sealing-key.ts'

/** The name of the file in the data directory. A backup takes it. */
export const keyFileName = 'secrets-key'

const keyBytes = 32
const fileMode = 0o600

/** The keys of an installation without `ATOLL_SECRETS_KEY`: one a line, the first seals. Each change is whole or not there at all. */
export class KeyFile {
  readonly #path: string

  constructor(path: string) {
    this.#path = path
  }

  /** Empty when there is no file. Throws `unavailable` when it holds anything but keys. */
  async read(): Promise<SealingKey[]> {
    let text: string
    try {
      text = await readFile(this.#path, 'utf8')
    } catch (error) {
      if (isCode(error, 'ENOENT')) return []
      throw new ServiceError('unavailable', `${keyFileName} of the data directory cannot be read`, { cause: error })
    }
    const keys = readKeys(text.split('\n').filter((line) => line.trim() !== ''))
    if (keys !== undefined && keys.length > 0) return keys
    const why = 'does not hold a key of 32 bytes in hex or base64 on each line'
    throw new ServiceError('unavailable', `${keyFileName} of the data directory ${why}: restore it from a backup`)
  }

  /** Makes the file with a new key. Of two that do at once, one makes it. */
  async make(): Promise<void> {
    const draft = await this.#writeDraft([newKey()])
    try {
      await link(draft, this.#path)
    } catch (error) {
      if (!isCode(error, 'EEXIST')) throw error
    } finally {
      await unlink(draft)
    }
    await syncFolder(dirname(this.#path))
  }

  /** Adds a new key before the others. */
  async addFirst(keys: readonly SealingKey[]): Promise<void> {
    await this.#replace([newKey(), ...keys.map(({ hex }) => hex)])
  }

  async keepOnly(keys: readonly SealingKey[]): Promise<void> {
    await this.#replace(keys.map(({ hex }) => hex))
  }

  async #replace(lines: readonly string[]): Promise<void> {
    await rename(await this.#writeDraft(lines), this.#path)
    await syncFolder(dirname(this.#path))
  }

  /** Synced under another name first: a crash leaves no file without its keys. */
  async #writeDraft(lines: readonly string[]): Promise<string> {
    const draft = `${this.#path}.${process.pid}`
    await using file = await open(draft, 'w', fileMode)
    await file.chmod(fileMode)
    await file.writeFile(lines.map((line) => `${line}\n`).join(''))
    await file.sync()
    return draft
  }
}

function newKey(): string {
  return randomBytes(keyBytes).toString('hex')
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}
