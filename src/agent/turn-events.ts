import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { defined } from '../lib/defined.ts'
import type { AgentEventOf } from '../protocol/agent.ts'
import type { HarnessEvent, HarnessSettings, TurnOutcome } from './harness.ts'
import { Draft } from './draft.ts'
import { charactersHeldBack } from './output.ts'
import { inOneLine, pathOf, summarise } from './summary.ts'

type AnswerMessage = AgentEventOf<'assistant'>['message']
export type Block = AnswerMessage['content'][number]

/** The longest path of an artifact. */
export const pathCharactersMax = 4096

const errorCharactersMax = 4000

export interface OpenCall {
  tool: string
  /** Comes from the model and can be anything. */
  input: unknown
  startedAt: number
  /** Its file existed before the call. */
  existed: boolean
}

/** Reports one turn of a harness as events of the protocol. */
export abstract class TurnEvents {
  protected readonly settings: HarnessSettings
  protected readonly emit: (event: HarnessEvent) => void
  /** The answer that the model is writing. */
  protected readonly draft: Draft
  /** The text of the last answer that has text. */
  lastText = ''

  constructor(settings: HarnessSettings, emit: (event: HarnessEvent) => void) {
    this.settings = settings
    this.emit = emit
    this.draft = new Draft(emit, charactersHeldBack)
  }

  protected answered(content: Block[], usage?: AnswerMessage['usage']): void {
    this.draft.restart()
    if (content.length === 0) return
    this.lastText = content.map((block) => (block.type === 'text' ? block.text : '')).join('') || this.lastText
    const model = this.settings.model.id
    this.emit({ type: 'assistant', message: { role: 'assistant', content, model, ...defined({ usage }) } })
  }

  protected openCall(tool: string, input: unknown): OpenCall {
    return { tool, input, startedAt: performance.now(), existed: this.hasFile(input) }
  }

  protected callEnded(id: string, call: OpenCall, isError: boolean, result: unknown, summary?: string): void {
    const { tool, input, startedAt, existed } = call
    this.emit({
      type: 'tool_use_summary',
      tool: inOneLine(tool),
      tool_use_id: id.slice(0, 1000),
      summary: summary ?? summarise(tool, input, result, isError, this.settings.cwd),
      is_error: isError,
      duration_ms: Math.round(performance.now() - startedAt),
    })
    const path = this.fileOf(input)
    if (!isError && (tool === 'write' || tool === 'edit') && path !== '' && path.length <= pathCharactersMax) {
      this.emit({ type: 'artifact', path, summary: existed ? 'Changed' : 'Created' })
    }
  }

  /** The absolute path of the file of a call, or an empty text. */
  protected fileOf(input: unknown): string {
    const path = pathOf(input)
    return path === '' ? '' : resolve(this.settings.cwd, path)
  }

  protected hasFile(input: unknown): boolean {
    const path = this.fileOf(input)
    return path !== '' && existsSync(path)
  }

  /** Reports an error about something left out. The turn goes on. */
  leftOut(what: string): void {
    this.emit({ type: 'error', code: 'output_cut', message: `Left out, being too large: ${what}.`, fatal: false })
  }

  /** The outcome of the turn: the first field of `end` that holds decides. Reports a failure. */
  outcome(
    counts: Pick<TurnOutcome, 'turnCount' | 'usage' | 'costUsd'>,
    result: string,
    end: { interrupted: boolean; stoppedAtMax: boolean; failure: { code: string; message: string } | undefined },
  ): TurnOutcome {
    this.draft.restart()
    if (end.interrupted) return { ...counts, subtype: 'interrupted', result }
    if (end.stoppedAtMax) return { ...counts, subtype: 'error_max_turns', result }
    if (!end.failure) return { ...counts, subtype: 'success', result }
    const message = end.failure.message.slice(0, errorCharactersMax)
    this.emit({ type: 'error', code: end.failure.code, message, fatal: false })
    return { ...counts, subtype: 'error_during_execution', result: message }
  }
}
