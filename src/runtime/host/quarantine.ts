import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { defined } from '../../lib/defined.ts'
import type { Quarantined, QuarantineReason } from '../../sandbox/ports/runtime-driver.ts'
import { readCheckpointRecord, readSandboxRecord } from './records.ts'
import type { CheckpointRecord, RecordKeeper, SandboxRecord } from './records.ts'

export interface QuarantineItem extends Quarantined {
  /** When it was moved, in whole seconds. */
  since: Date
  /** Absolute: the record file, empty where there was none. */
  file: string
  /** Absent while the file cannot be read. */
  record?: SandboxRecord | CheckpointRecord
}

/** `2026-11-22T12:37:17Z.sandbox.unknown.sb-…`: one rename says all that is to be said. */
const namePattern =
  /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\.(sandbox|checkpoint)\.(unknown|unreadable|unrecorded|damaged)\.(.+)$/

/** What lies in the quarantine of a data directory, oldest first. Wants no lock: files come and go whole. */
export async function quarantinedIn(dataDir: string): Promise<QuarantineItem[]> {
  const folder = folderOf(dataDir)
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    // Taken for empty in any other case, it would give up what it keeps.
    if (error.code === 'ENOENT') return []
    throw error
  })
  const items: QuarantineItem[] = []
  for (const name of names.toSorted((one, other) => (one < other ? -1 : 1))) {
    const [, since = '', kind, reason, id = ''] = namePattern.exec(name) ?? []
    if (kind === undefined) continue
    const item = { kind, reason, id, since: new Date(since), file: `${folder}/${name}` } as QuarantineItem
    const record = await recordOf(item)
    items.push({ ...item, ...defined({ record }) })
  }
  return items
}

async function recordOf({ kind, id, file }: QuarantineItem): Promise<QuarantineItem['record']> {
  const text = await readFile(file, 'utf8').catch(() => '')
  return kind === 'sandbox' ? readSandboxRecord(text, id) : readCheckpointRecord(text, id)
}

function folderOf(dataDir: string): string {
  return `${dataDir}/quarantine`
}

/** The sandbox that a disk of the pool is named after: its id, or its id and a number behind a dot. */
export function sandboxOfDisk(name: string): string {
  return name.split('.', 1)[0] ?? name
}

/**
 * Records that were taken out of force, as files in one folder. What they stand on stays where it is and is theirs; while one
 * cannot be read, all that carries its id is, and any layer may be.
 */
export class Quarantine {
  readonly #dataDir: string
  readonly #keeper: RecordKeeper<SandboxRecord | CheckpointRecord>
  #items: QuarantineItem[] = []

  constructor(dataDir: string, keeper: RecordKeeper<SandboxRecord | CheckpointRecord>) {
    this.#dataDir = dataDir
    this.#keeper = keeper
  }

  async load(): Promise<void> {
    const items = await quarantinedIn(this.#dataDir)
    for (const item of this.#items) this.#forget(item)
    for (const item of items) this.#add(item)
  }

  get items(): readonly QuarantineItem[] {
    return this.#items
  }

  has(kind: Quarantined['kind'], id: string, but?: QuarantineItem): boolean {
    return this.#items.some((item) => item !== but && item.kind === kind && item.id === id)
  }

  /** Whether nobody knows what all of them stand on. */
  get isBlind(): boolean {
    return this.#items.some(({ record }) => record === undefined)
  }

  /** Whether the id of one that cannot be read stands in front of a name, such as `<id>.<random>`. */
  ownsName(name: string): boolean {
    return this.#items.some(({ id, record }) => record === undefined && (name === id || name.startsWith(`${id}.`)))
  }

  /** Moves a record file here. Where `file` is undefined there is none, and an empty one stands for it. */
  async put(what: Quarantined, file: string | undefined, record: QuarantineItem['record']): Promise<void> {
    const folder = folderOf(this.#dataDir)
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const since = new Date(Math.floor(Date.now() / 1000) * 1000)
    const name = `${since.toISOString().replace('.000Z', 'Z')}.${what.kind}.${what.reason}.${what.id}`
    const item = { ...what, since, file: `${folder}/${name}`, ...defined({ record }) }
    if (file === undefined) await writeFile(item.file, '', { mode: 0o600 })
    else await rename(file, item.file)
    this.#add(item)
  }

  /** Moves the file of an item back to where it is in force. */
  async takeBack(item: QuarantineItem, file: string): Promise<void> {
    await rename(item.file, file)
    this.#forget(item)
  }

  async remove(item: QuarantineItem): Promise<void> {
    await rm(item.file, { force: true })
    this.#forget(item)
  }

  #add(item: QuarantineItem): void {
    this.#items.push(item)
    if (item.record !== undefined) this.#keeper.add(item.record)
  }

  #forget(item: QuarantineItem): void {
    this.#items = this.#items.filter((other) => other !== item)
    if (item.record !== undefined) this.#keeper.remove(item.record)
  }
}

/** In words, for a table. */
export const quarantineReasons: Record<QuarantineReason, string> = {
  unknown: 'the database does not know it',
  unreadable: 'its record cannot be read',
  unrecorded: 'it has no record',
  damaged: 'something that it stands on is gone',
}
