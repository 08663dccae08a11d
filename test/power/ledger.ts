/** What a server has acknowledged before the power was cut, and what it has been asked for without an answer. */

/** A file whose content is known by its sum. */
export interface KnownFile {
  sum: string
  /** Of an upload. */
  content?: Buffer
  /** The sum of the file that it has replaced, which was on the disk. */
  replaced?: string
  /** Its upload was not answered: either file may be there. */
  isTried?: boolean
  /** What put it there has been told that it is on the disk, or it was read back after a loss of power. */
  isSynced: boolean
}

/** A setting: the last value that was acknowledged, and those that were asked for since. */
export class Setting<Value> {
  acknowledged: Value
  readonly tried: Value[] = []

  constructor(value: Value) {
    this.acknowledged = value
  }

  async put(value: Value, call: () => Promise<boolean>): Promise<void> {
    this.tried.push(value)
    if (await call()) this.settle(value)
  }

  /** It has this value, as is known now. */
  settle(value: Value): void {
    this.acknowledged = value
    this.tried.length = 0
  }

  allows(value: Value): boolean {
    return [this.acknowledged, ...this.tried].includes(value)
  }
}

/** What may be gone by now: asked for and not answered, or answered. */
export type Deletion = 'tried' | 'acknowledged' | undefined

export interface KnownCheckpoint {
  id: string
  kind: 'full' | 'disk_only'
  files: ReadonlyMap<string, KnownFile>
  patches: Set<string>
  deletion: Deletion
}

export interface KnownSandbox {
  id: string
  /** At its creation. */
  metadata: string
  files: Map<string, KnownFile>
  tag: Setting<string>
  timeout: Setting<number>
  previews: Set<number>
  checkpoints: KnownCheckpoint[]
  volume: string | undefined
  deletion: Deletion
  /** A hibernation was acknowledged, and nothing was asked for since. */
  sleeps: boolean
  /** An address of a file that the server has signed. */
  signed: string | undefined
}

export interface KnownVolume {
  name: string
  snapshots: Set<string>
}

export interface KnownSession {
  id: string
  /** Ids of messages, with their texts. */
  messages: Map<string, string>
  /** Of its stream, as they were read. */
  events: Map<number, string>
}

export class Ledger {
  sandboxes: KnownSandbox[] = []
  readonly volumes: KnownVolume[] = []
  /** Names of images, with the sum of the file `/built` in them. */
  readonly images = new Map<string, string>()
  readonly sessions: KnownSession[] = []
  /** Of the log of the organisation, by number, as they were read. */
  readonly events = new Map<number, string>()
  readonly #counts = new Map<string, number>()
  #isOpen = true

  /** From now on answers come too late: the power may be gone. */
  close(): void {
    this.#isOpen = false
  }

  /** How often things of each kind were acknowledged since the last look. */
  takeCounts(): Map<string, number> {
    const counts = new Map(this.#counts)
    this.#counts.clear()
    this.#isOpen = true
    return counts
  }

  /** Of calls that change something; those of the log and of streams follow from them. */
  get changes(): number {
    const counts = [...this.#counts].filter(([kind]) => !kind.endsWith(' event'))
    return counts.reduce((sum, [, count]) => sum + count, 0)
  }

  /** Whether an answer that is there now counts; called at once when it is there. A `request` says nothing that could be lost. */
  admits(kind: string): boolean {
    if (this.#isOpen && kind !== 'request') this.#counts.set(kind, (this.#counts.get(kind) ?? 0) + 1)
    return this.#isOpen
  }
}
