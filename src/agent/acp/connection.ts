import {
  client,
  methods,
  PROTOCOL_VERSION,
  RequestError,
  type ClientContext,
  type InitializeResponse,
  type PermissionOption,
  type SessionUpdate,
} from '@agentclientprotocol/sdk'
import type { HarnessSettings } from '../harness.ts'
import { SavedSession } from '../state-dir.ts'
import { AcpProcess } from './process.ts'
import { toolOf } from './events.ts'

/** From the start of the program to its session. The first start of a large program is slow. */
const startMs = 50_000

/** Modes without permission requests: the sandbox is the boundary. */
const freeModes = ['yolo', 'bypassPermissions', 'full-access', 'danger-full-access']

const authRequired = -32_000

export interface AcpConnection {
  readonly process: AcpProcess
  readonly agent: ClientContext
  readonly sessionId: string
  /** The conversation is empty. */
  readonly isNew: boolean
  onUpdate: ((update: SessionUpdate) => void) | undefined
}

/**
 * Starts the program and opens the saved conversation, or a new one. Its errors have messages for a person. `onStart` is
 * called before the program can call its model.
 */
export async function connectAcp(
  command: readonly [string, ...string[]],
  settings: HarnessSettings,
  env: NodeJS.ProcessEnv,
  onStart: (program: AcpProcess) => void,
): Promise<AcpConnection> {
  const program = new AcpProcess(command, settings.cwd, env)
  onStart(program)
  const failed = program.ended.then((words) => {
    throw new Error(words)
  })
  failed.catch(() => {})
  const timeout = Promise.withResolvers<never>()
  const timer = setTimeout(() => timeout.reject(new Error(`${command[0]} did not speak ACP in time.`)), startMs)
  try {
    return await Promise.race([open(program, settings), failed, timeout.promise])
  } catch (error) {
    // An ended program has closed its output; the reason of its end says more than that.
    const end = isClosed(error) ? await program.endReason() : undefined
    program.kill()
    if (end !== undefined) throw new Error(end, { cause: error })
    throw readable(error)
  } finally {
    clearTimeout(timer)
  }
}

async function open(program: AcpProcess, settings: HarnessSettings): Promise<AcpConnection> {
  let connection: AcpConnection | undefined
  const { agent } = client({ name: 'atoll' })
    .onNotification(methods.client.session.update, ({ params }) => connection?.onUpdate?.(params.update))
    .onRequest(methods.client.session.requestPermission, ({ params }) => {
      const { name, kind, title } = params.toolCall
      const tool = toolOf({ name: name ?? undefined, kind: kind ?? undefined, title: title ?? undefined })
      return { outcome: permission(params.options, settings.allowedTools?.includes(tool) ?? true) }
    })
    .connect(program.stream)
  const initialized = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    // The program runs in the same sandbox with the same rights, so it needs no file or terminal services.
    clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false },
    clientInfo: { name: 'atoll', version: '1' },
  })
  connection = {
    process: program,
    agent,
    ...(await openConversation(agent, initialized, settings)),
    onUpdate: undefined,
  }
  return connection
}

async function openConversation(
  agent: ClientContext,
  { agentCapabilities }: InitializeResponse,
  settings: HarnessSettings,
): Promise<Pick<AcpConnection, 'sessionId' | 'isNew'>> {
  const { cwd } = settings
  const saved = new SavedSession(settings.stateDir, 'acp')
  const savedId = agentCapabilities?.loadSession ? saved.read() : undefined
  const loaded = savedId === undefined ? undefined : await load(agent, savedId, cwd)
  const { sessionId, modes } = loaded ?? (await agent.request(methods.agent.session.new, { cwd, mcpServers: [] }))
  if (!loaded) saved.write(sessionId)
  const free = modes?.availableModes.find(({ id }) => freeModes.includes(id))
  // With a list of allowed tools the agent must ask for permission, so that calls can be refused.
  if (free && settings.allowedTools === undefined) {
    await agent.request(methods.agent.session.setMode, { sessionId, modeId: free.id })
  }
  return { sessionId, isNew: !loaded }
}

/** Loads a saved conversation; undefined if the program has lost it. The replay that precedes the answer is ignored. */
async function load(agent: ClientContext, sessionId: string, cwd: string) {
  try {
    const { modes } = await agent.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] })
    return { sessionId, modes }
  } catch (error) {
    console.error(error)
    return undefined
  }
}

function permission(options: readonly PermissionOption[], isAllowed: boolean) {
  const kinds = isAllowed ? ['allow_always', 'allow_once'] : ['reject_once', 'reject_always']
  const option = kinds.map((kind) => options.find((offered) => offered.kind === kind)).find(Boolean)
  if (!option) return { outcome: 'cancelled' as const }
  return { outcome: 'selected' as const, optionId: option.optionId }
}

/** Whether the error is anything but an answer of the program. */
export function isClosed(error: unknown): boolean {
  return !(error instanceof RequestError)
}

function readable(error: unknown): unknown {
  if (!(error instanceof RequestError) || error.code !== authRequired) return error
  return new Error('The agent wants a login: it must be one that takes its key from the environment.', { cause: error })
}
