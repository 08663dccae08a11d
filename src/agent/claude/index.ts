/**
 * Harness `claude`: the Claude Agent SDK, if the operator has installed it in the sandbox. The SDK stores its conversations; the id of
 * ours is in `<stateDir>/claude/session.json`.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { defined } from '../../lib/defined.ts'
import {
  allowedTools,
  modelName,
  type Harness,
  type HarnessEvent,
  type HarnessSession,
  type HarnessSettings,
  type TurnInput,
  type TurnOutcome,
} from '../harness.ts'
import { promptWithSkills } from '../instructions.ts'
import { ModelProxy } from '../model-proxy.ts'
import { SavedSession } from '../state-dir.ts'
import { ClaudeEvents } from './events.ts'

/** The SDK's names of the protocol's tools. */
const claudeTools = ['Bash', 'Read', 'Write', 'Edit', 'Glob', 'Grep', 'LS'] as const

/** This tool runs at the model API, so the gateway refuses it. */
const hostedTool = 'WebSearch'

export const claudeHarness: Harness = {
  name: 'claude',
  version: '1',
  async open(settings) {
    const sdk = await loadClaudeSdk()
    const proxy = await ModelProxy.start(settings.gateway)
    // The SDK starts its program as a child of this process, in this process group.
    proxy.admit(() => process.pid)
    return new ClaudeSession(sdk, settings, proxy)
  },
}

class ClaudeSession implements HarnessSession {
  readonly tools: string[]
  readonly model: string
  readonly #sdk: ClaudeSdk
  readonly #settings: HarnessSettings
  readonly #proxy: ModelProxy
  readonly #saved: SavedSession
  #sessionId: string | undefined

  constructor(sdk: ClaudeSdk, settings: HarnessSettings, proxy: ModelProxy) {
    this.#sdk = sdk
    this.#settings = settings
    this.#proxy = proxy
    this.#saved = new SavedSession(settings.stateDir, 'claude')
    this.#sessionId = this.#saved.read()
    this.model = modelName(settings)
    this.tools = allowedTools(settings)
  }

  /** Empty until the first turn, in which the SDK creates it. */
  get sessionId(): string {
    return this.#sessionId ?? ''
  }

  async run(turn: TurnInput, emit: (event: HarnessEvent) => void, signal: AbortSignal): Promise<TurnOutcome> {
    const calls = this.#proxy.beginTurn(Number.POSITIVE_INFINITY, () => {})
    const events = new ClaudeEvents(this.#settings, emit)
    let failure: string | undefined
    try {
      if (!signal.aborted) await this.#query(turn, events, signal)
    } catch (error) {
      // The SDK throws after an abort and when its program ends: both end the turn and are no bugs.
      failure = error instanceof Error ? error.message : String(error)
    }
    events.end()
    const { result } = events
    const text = result?.result || events.lastText
    const hasSucceeded = result?.subtype === 'success' && !result.isError && !calls.failure
    const message = (calls.failure?.message ?? failure) || text || 'The Claude Agent SDK returned no result.'
    return events.outcome(
      {
        turnCount: result?.turnCount ?? calls.count,
        usage: { ...calls.usage },
        ...defined({ costUsd: result?.costUsd }),
      },
      text,
      {
        interrupted: signal.aborted,
        stoppedAtMax: result?.subtype === 'error_max_turns',
        failure: hasSucceeded ? undefined : { code: calls.failure?.code ?? 'agent_error', message },
      },
    )
  }

  async close(): Promise<void> {
    await this.#proxy.close()
  }

  async #query(turn: TurnInput, events: ClaudeEvents, signal: AbortSignal): Promise<void> {
    const abortController = new AbortController()
    const onAbort = () => abortController.abort()
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      const options = { ...this.#options(), abortController }
      for await (const message of this.#sdk.query({ prompt: promptOf(turn), options })) {
        events.take(message)
        const { sessionId } = events
        if (sessionId !== undefined && sessionId !== this.#sessionId) this.#saved.write(sessionId)
        this.#sessionId = sessionId ?? this.#sessionId
        if (signal.aborted) break
      }
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  #options(): Record<string, unknown> {
    const { cwd, model, maxTurns } = this.#settings
    const refused = claudeTools.filter((name) => !this.tools.includes(name.toLowerCase()))
    return {
      cwd,
      model: model.id,
      systemPrompt: { type: 'preset', preset: 'claude_code', append: promptWithSkills(this.#settings) },
      // The sandbox is the boundary, and there is no user to ask.
      permissionMode: 'bypassPermissions',
      allowDangerouslySkipPermissions: true,
      settingSources: ['project'],
      includePartialMessages: true,
      disallowedTools: [...refused, hostedTool],
      ...defined({ maxTurns, resume: this.#sessionId }),
      env: {
        ...process.env,
        // As root it refuses to skip permissions outside of a sandbox.
        IS_SANDBOX: '1',
        ANTHROPIC_BASE_URL: `${this.#proxy.url}/anthropic`,
        ANTHROPIC_API_KEY: this.#proxy.credential,
        // The SDK would prefer this token to the key, and the proxy accepts only its own key.
        ANTHROPIC_AUTH_TOKEN: undefined,
        ANTHROPIC_MODEL: model.id,
        // The session may use one model alone, also for small tasks.
        ANTHROPIC_SMALL_FAST_MODEL: model.id,
        ANTHROPIC_DEFAULT_HAIKU_MODEL: model.id,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
      },
    }
  }
}

function promptOf(turn: TurnInput): string {
  if (!turn.resumed) return turn.content
  return `You were stopped in the middle of work on the following message; look at what is done before you repeat anything.\n\n${turn.content}`
}

const packageName = '@anthropic-ai/claude-agent-sdk'

/** The folders of `npm install --global`, with the base image's Node and with Debian's. */
const moduleFolders = ['/usr/local/lib/node_modules', '/usr/lib/node_modules']

/** The used part of the Claude Agent SDK. The package is proprietary, so Atoll does not ship it. */
interface ClaudeSdk {
  query(options: { prompt: string; options: Record<string, unknown> }): AsyncIterable<unknown>
}

/** Loads the package from the sandbox. Throws with instructions when it is not installed. */
async function loadClaudeSdk(): Promise<ClaudeSdk> {
  const own = process.env['ATOLL_CLAUDE_MODULES']
  for (const folder of own ? [own, ...moduleFolders] : moduleFolders) {
    const root = join(folder, packageName)
    if (!existsSync(join(root, 'package.json'))) continue
    const about = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { main?: string }
    const module = (await import(pathToFileURL(join(root, about.main ?? 'sdk.mjs')).href)) as Partial<ClaudeSdk>
    if (typeof module.query !== 'function') throw new Error(`${root} has no query(): it is not the Claude Agent SDK.`)
    return { query: module.query }
  }
  throw new Error(
    `The Claude Agent SDK is not installed in this sandbox: run "npm install --global ${packageName}" in one, make a checkpoint ` +
      'of it, and start sessions from that checkpoint (checkpoint_id).',
  )
}
