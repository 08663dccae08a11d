import { type Ranges, Files } from './file-ranges.ts'
import { type ProgramState, Program } from './program.ts'
import { Intervals } from './intervals.ts'

const traceLinesMax = 60

/** What a sandbox is known to start with. */
export interface InitialState {
  files: Ranges
  program: ProgramState
  /** Of the variable `BOX`. */
  mark: string
}

/** One sandbox and all that is known of it. What several clients do to it is told here before and after. */
export class SandboxModel {
  readonly id: string
  readonly mark: string
  readonly files: Files
  readonly program: Program
  /** Intervals in which an operation under way may be cut off: hibernations by call, and all that ends processes. */
  readonly cuts = new Intervals()
  /** Intervals in which its first process was killed and nobody knows yet what becomes of it. */
  readonly kills = new Intervals()
  /** Its first process was killed: it may be in `error`, and if it is, for good. */
  wasKilled = false
  deletion: 'none' | 'asked' | 'done' = 'none'

  /** When the last restart or restore was asked for that came to its end; 0 before. */
  revivedMs = 0
  readonly #trace: string[] = []

  constructor(id: string, { files, program, mark }: InitialState) {
    this.id = id
    this.mark = mark
    this.files = new Files(files)
    this.program = new Program(id, program)
  }

  get isUsable(): boolean {
    return this.deletion === 'none' && !this.wasKilled
  }

  note(text: string): void {
    this.#trace.push(`${new Date().toISOString().slice(11, 23)} ${text}`)
    if (this.#trace.length > traceLinesMax) this.#trace.shift()
  }

  get trace(): string {
    return `${this.id}:\n  ${this.#trace.join('\n  ')}`
  }
}

export type CheckpointKind = 'full' | 'disk_only'

export interface KnownPatch {
  id: string
  /** What it writes into `/var/patches`; undefined for one that fails. */
  line?: string
  /** Absent while nobody knows whether it exists. */
  sequence?: number
  deletion: 'none' | 'asked' | 'done'
}

/** A checkpoint that was seen `ready`. */
export interface CheckpointModel {
  id: string
  sandbox: SandboxModel
  kind: CheckpointKind
  files: Ranges
  program: ProgramState
  mark: string
  deletion: 'none' | 'asked' | 'done'
  /** One is here from the moment at which it may exist. */
  patches: KnownPatch[]
}
