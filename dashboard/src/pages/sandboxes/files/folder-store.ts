import type { FileChange } from 'atoll-sdk'
import { type Entry, type Facts, withChanges } from './entry.ts'
import { isWithin, keyOf, type Place } from './place.ts'

/** A folder whose content is shown. `loading` for the first time; what was read stays while it is read again, or could not be. */
export interface Folder {
  place: Place
  isLoading: boolean
  entries: readonly Entry[] | undefined
  /** When it was read. */
  readAtMs: number
  error?: unknown
}
export type Folders = ReadonlyMap<string, Folder>

/** Of all open folders together; a folder has at most 100 000. */
const entriesMax = 300_000
/** Changes come in bursts. */
const drawMs = 150
const learnedMs = 2000

/** The open folders of a sandbox and what they hold. */
export class FolderStore {
  readonly #read: (place: Place, signal: AbortSignal) => Promise<readonly Entry[]>
  readonly #listeners = new Set<() => void>()
  readonly #readings = new Map<string, AbortController>()
  #folders: Folders = new Map()
  #changes: FileChange[] = []
  readonly #facts = new Map<string, Facts>()
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(read: (place: Place, signal: AbortSignal) => Promise<readonly Entry[]>) {
    this.#read = read
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  readonly view = (): Folders => this.#folders

  /** Opens a folder, or reads one that is open again. */
  async read(place: Place): Promise<void> {
    const key = keyOf(place)
    this.#readings.get(key)?.abort()
    const reading = new AbortController()
    this.#readings.set(key, reading)
    const { entries: known, readAtMs } = this.#folders.get(key) ?? { entries: undefined, readAtMs: 0 }
    this.#set(key, { place, isLoading: true, entries: known, readAtMs })
    try {
      const beganAtMs = Date.now()
      const entries = await this.#read(place, reading.signal)
      if (reading.signal.aborted) return
      const others = [...this.#folders].reduce((sum, [other, folder]) => sum + (other === key ? 0 : sizeOf(folder)), 0)
      if (others + entries.length > entriesMax) throw new Error('Too many files are shown: close another folder first.')
      this.#set(key, { place, isLoading: false, entries, readAtMs: beganAtMs })
    } catch (error) {
      if (reading.signal.aborted) return
      this.#set(key, { place, isLoading: false, entries: this.#folders.get(key)?.entries, readAtMs, error })
    } finally {
      if (this.#readings.get(key) === reading) this.#readings.delete(key)
    }
  }

  async readAll(): Promise<void> {
    await Promise.all([...this.#folders.values()].map(({ place }) => this.read(place)))
  }

  /** Forgets a folder with those below it. */
  close(folder: Place): void {
    const folders = new Map(this.#folders)
    for (const [key, { place }] of this.#folders) {
      if (!isWithin(place, folder)) continue
      this.#readings.get(key)?.abort()
      this.#readings.delete(key)
      folders.delete(key)
    }
    this.#update(folders)
  }

  /** Forgets all. */
  clear(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#changes = []
    for (const reading of this.#readings.values()) reading.abort()
    this.#readings.clear()
    this.#update(new Map())
  }

  /** Notes what has changed, in whatever folder it is. */
  note(changes: readonly FileChange[]): void {
    this.#changes.push(...changes)
    this.#timer ??= setTimeout(() => this.#apply(this.#changes.splice(0)), drawMs)
  }

  /** Notes what a file is now. A change that is told within the next moments is what has made it so. */
  learn(place: Place, facts: Facts): void {
    const key = keyOf(place)
    this.#facts.set(key, facts)
    this.note([{ type: 'modified', ...place }])
    setTimeout(() => {
      if (this.#facts.get(key) === facts) this.#facts.delete(key)
    }, learnedMs)
  }

  #apply(changes: readonly FileChange[]): void {
    this.#timer = undefined
    const folders = new Map(this.#folders)
    let hasChanged = false
    for (const [key, folder] of this.#folders) {
      if (folder.entries === undefined) continue
      const entries = withChanges(folder.place, folder.entries, changes, this.#facts)
      if (entries === folder.entries) continue
      folders.set(key, { ...folder, entries })
      hasChanged = true
    }
    if (hasChanged) this.#update(folders)
  }

  #set(key: string, folder: Folder): void {
    this.#update(new Map(this.#folders).set(key, folder))
  }

  #update(folders: Folders): void {
    this.#folders = folders
    for (const listener of this.#listeners) listener()
  }
}

function sizeOf({ entries = [] }: Folder): number {
  return entries.length
}
