import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { defined } from '../../lib/defined.ts'
import { namesIn } from '../../lib/missing-files.ts'
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

/** `2026-11-22T12:37:17Z.sandbox.unknown.sb-…`: one rename records everything. */
const namePattern =
  /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\.(sandbox|checkpoint)\.(unknown|unreadable|unrecorded|damaged)\.(.+)$/

/** The items in the quarantine of a data directory, oldest first. Needs no lock: files appear and vanish by one rename. */
export async function quarantinedIn(dataDir: string): Promise<QuarantineItem[]> {
  const folder = folderOf(dataDir)
  // One that cannot be read must not count as empty: what its items own would be removed.
  const names = await namesIn(folder)
  const items: QuarantineItem[] = []
  for (const name of names.toSorted((one, other) => (one < other ? -1 : 1))) {
    const [, since = '', kind, reason, id = ''] = namePattern.exec(name) ?? []
    if (kind === undefined) continue
    const item = { kind, reason, id, since: new Date(since), file: `${folder}/${name}` } as QuarantineItem
    items.push({ ...item, ...(await readItem(item)) })
  }
  return items
}

async function readItem({ kind, id, file }: QuarantineItem): Promise<Pick<QuarantineItem, 'record' | 'fault'>> {
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
 * Records that are not in force any more, as files in one folder. They own all that they reference, where it is. A record that
 * cannot be read owns everything that carries its id, and may reference any layer.
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

  /** Whether the references of any item are unknown. */
  get hasUnreadable(): boolean {
    return this.#items.some(({ record }) => record === undefined)
  }

  /** Whether a name, such as `<id>.<random>`, begins with the id of an unreadable item. */
  ownsName(name: string): boolean {
    return this.#items.some(({ id, record }) => record === undefined && (name === id || name.startsWith(`${id}.`)))
  }

  /** Moves a record file here; without a `file` it makes an empty one. */
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

/** For a table. */
export const quarantineReasons: Record<QuarantineReason, string> = {
  unknown: 'the database does not know it',
  unreadable: 'its record cannot be read',
  unrecorded: 'it has no record',
  damaged: 'its disk, a layer or its memory is gone',
}
