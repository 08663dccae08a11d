import { type Ranges, Files } from './file-ranges.ts'
import { type ProgramState, Program } from './program.ts'
import { Intervals } from './intervals.ts'

const traceLinesMax = 60

/** The known state in which a sandbox starts. */
export interface InitialState {
  files: Ranges
  program: ProgramState
  /** Of the variable `BOX`. */
  mark: string
}

/** A sandbox with the known bounds of its state. Clients report each of their operations before and after it. */
export class SandboxModel {
  readonly id: string
  readonly mark: string
  readonly files: Files
  readonly program: Program
  /** In these an operation under way may be cut off: hibernations by call, and everything that ends processes. */
  readonly cuts = new Intervals()
  /** In these its first process is dead and the state that it settles in is not known yet. */
  readonly kills = new Intervals()
  /** Its first process was killed, so it may be in `error`, and stays there. */
  wasKilled = false
  deletion: 'none' | 'asked' | 'done' = 'none'

  /** The time at which the last successful restart or restore was requested; 0 before. */
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
  /** The line that it writes into `/var/patches`; absent for a patch that fails. */
  line?: string
  /** Absent until the server has confirmed that it exists. */
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
  /** A patch is listed from the moment at which it may exist. */
  patches: KnownPatch[]
}
