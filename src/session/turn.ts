import type { CheckpointKind } from '../sandbox/index.ts'
import type { PointProject, RewindWhat } from './session.ts'

/** The counters of a session at one time; see `Session`. */
export interface Counters {
  inputTokens: number
  cacheReadTokens: number
  cacheWriteTokens: number
  outputTokens: number
  /** Absent: not known. */
  costNanoUsd?: number
}

/** A file that a turn has changed in the working folder, as git sees it; see `ComparedFile`. */
export interface TurnFile {
  path: string
  change: 'added' | 'modified' | 'deleted' | 'renamed'
  isBinary: boolean
  addedLines: number
  removedLines: number
}

export interface TurnFiles {
  /** The first ones by path. */
  files: TurnFile[]
  addedLines: number
  removedLines: number
  isCut: boolean
}

/** The agent's work on one message, as it is kept. */
export interface Turn {
  messageId: string
  /** The turn before it in its branch. */
  parentId?: string
  /** Numbers of stream events. `lastEvent` is that of its `turn_complete`. */
  firstEvent: number
  lastEvent?: number
  startedAt: Date
  endedAt?: Date
  /** Of its `result`. */
  subtype?: string
  /** Whether the preview answered when it ended. */
  preview?: 'ready' | 'none'
  usageBefore: Counters
  /** Absent while they are not known. */
  files?: TurnFiles
  /** The number of the `rewound` that left it; absent for one of the branch in force. */
  leftEvent?: number
}

/** A state of a session that is kept as a checkpoint: that after a turn, or that before a rewind. */
export interface Point {
  checkpointId: string
  origin: 'turn' | 'undo'
  /** The newest turn of its branch then. */
  turnId?: string
  /** The number of the newest stream event then. */
  afterEvent: number
  kind: CheckpointKind
  sizeBytes: number
  durationMs: number
  project: PointProject
  createdAt: Date
}

/** What the policy looks at. `ordinal`: the number of its turn among all turns of the session, from 1; 0 without a turn. */
export type KeptPoint = Pick<Point, 'checkpointId' | 'origin'> & { ordinal: number }

export interface Rewind {
  /** The number of its `rewound`. */
  event: number
  what: RewindWhat
  checkpointId: string
  undoCheckpointId: string
  turnId?: string
  restoredMessageId?: string
  adoptedFrom?: string
  createdAt: Date
}
