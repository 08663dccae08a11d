import type { SessionLimits } from './config.ts'
import type { Artifact } from './session.ts'
import type { SessionState } from './state.ts'

/** What ran out: the turn's share, the share outside of turns, or the session's as a whole. */
export type Overdraft = 'turn' | 'idle' | 'session'

/** What an agent process said since it began or since the last turn ended, whichever is later. */
export interface IdleOutput {
  /** The process has said `ready`. */
  ready: boolean
  /** Lines of any kind. */
  lines: number
  errors: number
}

/** What a turn's agent said: lines of any kind, and the bytes of their JSON text. */
export interface TurnOutput {
  lines: number
  bytes: number
}

export type OutputLimits = Pick<
  SessionLimits,
  'turnLinesMax' | 'turnBytesMax' | 'idleLinesMax' | 'idleErrorsMax' | 'streamBytesMax' | 'historyBytesMax'
>

export const outputLimitCode = 'output_limit'
const artifactsMax = 200
/** Characters of all paths and summaries, each up to three bytes: a commit writes all of them. */
const artifactCharactersMax = 40 * 1024

/** Bytes of the JSON text, which is what a store keeps. */
export function weightOf(data: object): number {
  return Buffer.byteLength(JSON.stringify(data))
}

/** The state with one more line of the agent counted, whether it is kept or not. */
export function counted(state: SessionState, line: { type: string }, bytes: number): SessionState {
  const { turn, idle } = state
  if (turn) {
    const output = { lines: turn.output.lines + 1, bytes: turn.output.bytes + bytes }
    return { ...state, turn: { ...turn, output } }
  }
  const errors = idle.errors + (line.type === 'error' ? 1 : 0)
  return { ...state, idle: { ...idle, lines: idle.lines + 1, errors } }
}

/** Which limit a line of `bytes` that has been counted goes beyond. The disk of the server is everybody's. */
export function overdraft(state: SessionState, limits: OutputLimits, bytes: number): Overdraft | undefined {
  const { turn, idle, streamBytes } = state
  if (streamBytes + bytes > limits.streamBytesMax) return 'session'
  if (turn) {
    const { output } = turn
    return output.lines > limits.turnLinesMax || output.bytes > limits.turnBytesMax ? 'turn' : undefined
  }
  return idle.lines > limits.idleLinesMax || idle.errors > limits.idleErrorsMax ? 'idle' : undefined
}

export function overdraftText(over: Overdraft): string {
  if (over === 'session') return 'The session has said as much as a session may; its sandbox still has the files.'
  if (over === 'turn') return 'The agent said more than it may in one turn; its process was killed.'
  return 'The agent said more than it may outside of a turn; its process was killed.'
}

/** Newest first, one entry a path; the oldest give way. */
export function withArtifact(artifacts: readonly Artifact[], artifact: Artifact): Artifact[] {
  const all = [artifact, ...artifacts.filter(({ path }) => path !== artifact.path)].slice(0, artifactsMax)
  let characters = 0
  const beyond = all.findIndex(({ path, summary }) => {
    characters += path.length + summary.length
    return characters > artifactCharactersMax
  })
  return beyond < 0 ? all : all.slice(0, beyond)
}
