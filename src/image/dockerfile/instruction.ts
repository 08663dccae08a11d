import type { Healthcheck } from '../../sandbox/index.ts'
import type { Heredoc } from './heredoc.ts'
import type { CopyOperation, Written } from './operations.ts'

/** An instruction whose form is right. Words have their quotes, escapes and variables still. */
export type Instruction = Written &
  (
    | ArgInstruction
    | RunInstruction
    | CopyInstruction
    | { type: 'env' | 'label'; pairs: readonly Pair[] }
    | { type: 'workdir' | 'user' | 'stopsignal'; word: string }
    | { type: 'expose' | 'volume'; words: readonly string[] }
    | { type: 'cmd' | 'entrypoint'; command: Command }
    | { type: 'shell'; words: readonly [string, ...string[]] }
    | { type: 'healthcheck'; healthcheck: Healthcheck }
  )

export interface Pair {
  name: string
  value: string
}

export interface ArgInstruction {
  type: 'arg'
  args: readonly { name: string; value?: string }[]
}

/** The text of the shell form, or the words of the exec form. */
export type Command = string | readonly string[]

export interface RunInstruction {
  type: 'run'
  command: Command
  /** A heredoc that is all of the command. */
  script?: Heredoc
  mounts: readonly (readonly MountOption[])[]
}

/** An option of `--mount`. Its value may have variables. */
export interface MountOption {
  name: string
  value?: string
}

export interface CopyInstruction extends Omit<CopyOperation, 'sources' | keyof Written> {
  sources: readonly ({ word: string } | { heredoc: Heredoc })[]
}

/** `FROM` and what follows it up to the next one. */
export interface Stage {
  index: number
  line: number
  /** In lower case. */
  name?: string
  image: string
  platform?: string
  instructions: readonly Instruction[]
}

/** A text whose form is right. Nothing in it is expanded. */
export interface Dockerfile {
  /** Before the first `FROM`. */
  globalArgs: readonly (ArgInstruction & Written)[]
  stages: readonly [Stage, ...Stage[]]
  escape: string
  warnings: readonly string[]
}
