import type { ServiceError } from '../errors.ts'
import type { Creation } from '../lib/creation.ts'
import type { StreamEventData } from '../protocol/stream-events.ts'
import type { Sandbox } from '../sandbox/index.ts'
import type { AgentOutput } from './agent-connection.ts'
import type { AgentConfig, Message, PendingRewind } from './session.ts'
import type { Point, Turn } from './turn.ts'

export type SandboxView = Pick<Sandbox, 'status' | 'restores' | 'reason' | 'reasonMessage'>

/** Calls of the session service. A refused one throws and changes nothing. */
type Request =
  /** The server takes the session up. */
  | { type: 'resume' }
  | { type: 'message'; content: string; creation?: Creation | undefined }
  /** The commit of a waiting message may have looked like a failure. */
  | { type: 'continue' }
  | { type: 'interrupt' }
  | { type: 'cancel_message'; messageId: string }
  /** Lets no turn begin until `unpause`. */
  | { type: 'pause' }
  | { type: 'unpause' }
  /** Likewise, of a session that may be at work: the turn that runs is interrupted. */
  | { type: 'hold' }
  | { type: 'rewind_decided'; rewind: PendingRewind; undo: Point; creation?: Creation | undefined }
  | { type: 'archive'; reason: string }
  /** The store has other limits; `isWithinBudget`: a session that is paused for its budget may go on. */
  | { type: 'reconfigured'; agentConfig: Partial<AgentConfig>; isWithinBudget: boolean }
  | {
      type: 'restart'
      lostId: string
      sandboxId: string
      checkpointId?: string | undefined
      creation?: Creation | undefined
    }
  /** The sandbox is about to be deleted; no step begins any more. */
  | { type: 'ending' }
  | { type: 'end'; tokenHash: string }

/** A turn of a fork, as the session has it that adopts the fork: its new id, which is that of its user message, and its messages. */
export interface AdoptedTurn extends Required<Pick<Turn, 'subtype' | 'preview'>> {
  id: string
  messages: Message[]
}

export type StepResult =
  | { type: 'step_done' }
  | {
      type: 'step_failed'
      sandboxId: string
      what: string
      error: unknown
      fault?: string | undefined
      processId?: string | undefined
    }
  | { type: 'inspected'; sandboxId: string; sandbox: SandboxView | undefined }
  | { type: 'booted'; sandboxId: string }
  | { type: 'fork_checkpoint_deleted'; sandboxId: string; isDeleted: boolean }
  | { type: 'restore_accepted'; sandboxId: string; restores: number | undefined }
  | {
      type: 'rewind_done'
      sandboxId: string
      undoCheckpointId: string
      restores: number
      fromEvent: number
      adopted: readonly AdoptedTurn[]
    }
  | { type: 'rewind_failed'; undoCheckpointId: string; error: ServiceError }
  | { type: 'agent_started' }
  | { type: 'capacity_wait_over' }
  | { type: 'attach_failed'; processId: string; error: unknown; sandbox: SandboxView | undefined }
  | { type: 'attachment_ended'; processId: string; exitCode?: number | undefined; wasLong: boolean }

export type Input =
  | Request
  | StepResult
  /** Answers the effect of this name: the attachment is open. */
  | { type: 'start_turn' }
  /** Within the step `start_agent`: the process is about to be started. */
  | { type: 'agent_begun'; sandboxId: string; processId: string; tokenHash: string }
  | { type: 'attached'; processId: string }
  | { type: 'live' }
  | {
      type: 'agent_output'
      processId: string
      output: readonly AgentOutput[]
      offset: number
      framework?: string | undefined
    }
  /** The sandbox has taken all commands up to the effect `report_sent`. */
  | { type: 'commands_sent'; wakes: number }
  /** Answers the effect `save_turn`: with a point, or why there is none. */
  | { type: 'turn_saved'; turnId: string; point?: Point | undefined; failure?: string | undefined }
  /** Another part of the server warns the followers of the session. */
  | { type: 'warning'; code: string; message: string }
  /** Likewise, tells them something. */
  | { type: 'tell'; event: StreamEventData }
  | { type: 'timer'; name: TimerName }
  | {
      type: 'sandbox_changed'
      sandboxId: string
      status: string
      reason?: string | undefined
      sandbox: SandboxView | undefined
    }
  | { type: 'sandbox_lost'; sandboxId: string; sandbox: SandboxView | undefined }
  | { type: 'preview_ready'; sandboxId: string }
  /** A result could not be committed, or a call failed unexpectedly: the step under way is lost. */
  | { type: 'recover' }

export type TimerName = 'late_start' | 'escalate'

/** Commands name what they carry; the runner reads the texts. */
export type CommandRef =
  | { type: 'configure' }
  | { type: 'message'; messageId: string }
  | { type: 'interrupt'; messageId: string }

export type StepEffect =
  | { type: 'inspect_sandbox' }
  /** A step that `queues` begins behind the sessions of the organisation that wait for capacity already. */
  | { type: 'boot'; queues: boolean }
  | { type: 'delete_fork_checkpoint' }
  | { type: 'accept_restore'; queues: boolean }
  /** Puts the sandbox, the agent's conversation, or both back. */
  | { type: 'rewind'; rewind: PendingRewind }
  | { type: 'start_agent'; failedStarts: number; queues: boolean }
  | { type: 'attach'; processId: string; offset: number; wake: boolean; queues: boolean }
  /** `error` is the newest refusal; without one the wait goes on that an earlier server began. */
  | { type: 'wait_for_capacity'; isShared: boolean; error: ServiceError | undefined; failures: number; until: Date }
  | { type: 'back_off'; failures: number }

/** Effects that take time. One runs at a time; its result is an input. */
export type StepName = StepEffect['type']

export type Effect =
  | StepEffect
  | { type: 'end_capacity_pause' }
  | { type: 'leave_capacity_queue'; succeeded: boolean }
  | { type: 'release_start_permit' }
  /** A message came: its turn begins in a commit of its own, if the attachment still stands then. */
  | { type: 'start_turn' }
  /** Takes the checkpoint of a turn that has ended, beside the steps; `turn_saved` answers it. */
  | { type: 'save_turn'; turnId: string }
  /** Removes the points that the policy does not keep, and notes what the turn has changed. */
  | { type: 'tend_points'; turnId: string }
  /** The turn has failed, of which the session makes a capsule. */
  | { type: 'share_failure'; turnId: string }
  | { type: 'drop_point'; checkpointId: string }
  | { type: 'send'; command: CommandRef }
  | { type: 'report_sent'; wakes: number }
  | { type: 'detach' }
  | { type: 'signal_agent'; processId: string; signal: number }
  | { type: 'set_timer'; name: TimerName; ms: number }
  | { type: 'watch_preview' }
  | { type: 'delete_sandbox'; sandboxId: string }
  | { type: 'log_failure'; what: string; error: unknown }
