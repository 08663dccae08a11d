import { constants } from 'node:os'
import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { ignoreNotFound, ServiceError } from '../errors.ts'
import type { EventBus } from '../events/index.ts'
import { defined } from '../lib/defined.ts'
import type { Release, Semaphore } from '../lib/async/semaphore.ts'
import { sha256 } from '../lib/secret.ts'
import { type AgentCommandInput, agentEnvironment, agentLineBytesMax } from '../protocol/agent.ts'
import type { CreateSandbox, Handover, Sandbox, SandboxService } from '../sandbox/index.ts'
import { defaultAgentCommand, type SessionConfig, skillsDir } from './config.ts'
import { splitModel } from './input.ts'
import type { Session } from './session.ts'
import type { Instructions, SessionStore } from './store.ts'

/** How long a boot waits for an earlier boot of the same sandbox. */
const settleMs = 60_000
const skillWritesAtOnce = 8
/** The guest retains more than the longest line of the agent, so that a line can end while the server is away. */
const agentKeepSlackBytes = 4 * 1024 * 1024

interface BootDeps {
  sandboxes: SandboxService
  bus: EventBus
}

/** Creates and boots the sandbox, unless an earlier attempt has. A repeat is harmless. */
export async function ensureSandbox(deps: BootDeps, session: Session, signal: AbortSignal): Promise<void> {
  const { sandboxes } = deps
  const { orgId, sandboxId } = session
  const found = await settledSandbox(deps, session, signal)
  if (found?.status === 'running' || found?.status === 'hibernated') return
  if (found?.status === 'stopped') throw new ServiceError('sandbox_stopped', `sandbox ${sandboxId} is stopped`)
  signal.throwIfAborted()
  const { envs, volumes, secretStore, egress } = session.agentConfig
  const given = { id: sandboxId, envs, ...defined({ volumes, secretStore, egress }) }
  if (session.checkpointId === undefined) {
    const input: CreateSandbox = { ...given, metadata: { sessionId: session.id } }
    await sandboxes.create(orgId, input)
  } else {
    await sandboxes.checkpoints.start(orgId, session.checkpointId, {
      ...given,
      ...defined({ handover: handoverOf(session) }),
    })
  }
}

/** A later checkpoint of the session is its own. */
function handoverOf({ checkpointId, agentConfig }: Session): Handover | undefined {
  const { handedOverIn, secretEnvs: withoutEnvs = [] } = agentConfig
  return handedOverIn !== undefined && handedOverIn === checkpointId ? { withoutEnvs } : undefined
}

/**
 * Agents that run in the sandbox. Those that run before the session starts its own are strangers: they came with the memory of a
 * checkpoint, hold another token and work on a turn of another session; or the answer to their start was lost.
 */
export async function runningAgents(sandboxes: SandboxService, { orgId, sandboxId }: Session): Promise<string[]> {
  const processes = await sandboxes.exec.list(orgId, sandboxId, 'internal')
  return processes.filter(({ running }) => running).map(({ id }) => id)
}

/** Kills these agents. What they started lives on. */
export async function endAgents(
  sandboxes: SandboxService,
  { orgId, sandboxId }: Session,
  processIds: readonly string[],
): Promise<void> {
  for (const id of processIds) await sandboxes.exec.kill(orgId, sandboxId, id, constants.signals.SIGKILL, 'internal')
}

/** Does nothing for a fork: it has the skills of its source on disk, which the agent may have changed. */
export async function writeSkills(
  { sandboxes, store }: { sandboxes: SandboxService; store: SessionStore },
  session: Session,
): Promise<void> {
  const { orgId, sandboxId } = session
  if (session.forkedFrom !== undefined) return
  const skills = Object.entries(await store.skills(session.id))
  for (let start = 0; start < skills.length; start += skillWritesAtOnce) {
    const some = skills.slice(start, start + skillWritesAtOnce)
    await Promise.all(
      some.map(([path, text]) =>
        sandboxes.files.write(orgId, sandboxId, path, Readable.from([Buffer.from(text)]), { user: 'root' }),
      ),
    )
  }
}

/** Starts the agent's program under this id, with this token for the model gateway. */
export async function startAgent(
  deps: { sandboxes: SandboxService; config: SessionConfig },
  session: Session,
  agent: { processId: string; token: string },
): Promise<void> {
  const [cmd, ...args] = deps.config.agentCommand ?? defaultAgentCommand
  await deps.sandboxes.exec.start(session.orgId, session.sandboxId, {
    id: agent.processId,
    internal: true,
    keep: 'lossless',
    keepBytes: agentLineBytesMax + agentKeepSlackBytes,
    cmd,
    args: [...args, session.agentConfig.harness],
    envs: { [agentEnvironment.gatewayUrl]: deps.config.gatewayUrl, [agentEnvironment.gatewayToken]: agent.token },
    timeoutSeconds: 0,
  })
}

export function configureCommand(
  session: Session,
  { systemPrompt, skillPaths }: Instructions,
  config: SessionConfig,
): Extract<AgentCommandInput, { type: 'configure' }> {
  const { harness, model, cwd, allowedTools, maxTurns } = session.agentConfig
  const skillFiles = skillPaths.filter((path) => path.endsWith('/SKILL.md') && !path.startsWith(`${skillsDir}/`))
  const price = config.prices?.get(model)
  return {
    type: 'configure',
    sessionId: session.id,
    harness,
    model: splitModel(model) ?? { provider: model, id: model },
    cwd,
    ...defined({ systemPrompt, allowedTools, maxTurns, price }),
    ...defined({ skillFiles: skillFiles.length === 0 ? undefined : skillFiles }),
  }
}

/** The sandbox once it is no longer being created; undefined when there is none. Throws `unavailable` after `settleMs`. */
async function settledSandbox(
  { sandboxes, bus }: BootDeps,
  session: Session,
  signal: AbortSignal,
): Promise<Sandbox | undefined> {
  const { sandboxId } = session
  let changed = new AbortController()
  const unsubscribe = bus.subscribe(sandboxId, () => changed.abort())
  const until = performance.now() + settleMs
  try {
    for (let leftMs = settleMs; leftMs > 0; leftMs = until - performance.now()) {
      // Before the look, so that no change falls between the two.
      changed = new AbortController()
      const sandbox = await findSandbox(sandboxes, session)
      if (sandbox?.status !== 'creating') return sandbox
      await sleep(leftMs, undefined, { signal: AbortSignal.any([signal, changed.signal]) }).catch(() => undefined)
      signal.throwIfAborted()
    }
  } finally {
    unsubscribe()
  }
  throw new ServiceError('unavailable', `sandbox ${sandboxId} does not come up`)
}

export async function findSandbox(
  sandboxes: SandboxService,
  { orgId, sandboxId }: Pick<Session, 'orgId' | 'sandboxId'>,
): Promise<Sandbox | undefined> {
  return await sandboxes.get(orgId, sandboxId).catch(ignoreNotFound)
}

/** A repeat is harmless. */
export async function deleteSandbox(
  sandboxes: SandboxService,
  { orgId, sandboxId }: Pick<Session, 'orgId' | 'sandboxId'>,
): Promise<void> {
  await sandboxes.delete(orgId, sandboxId).catch(ignoreNotFound)
}

/** A token for the model gateway. The store has only its hash. */
export function newGatewayToken(): string {
  return randomBytes(32).toString('base64url')
}

/** The hash of a token that nobody has: before an agent runs, and after the session has ended. */
export function unusedTokenHash(): string {
  return sha256(newGatewayToken())
}

/**
 * The permit of one session to start its agent: none ──acquire──► held ──release, or `permitMs` later──► none. Many agents that start
 * at once would share the processors until none is ready in time, and each would be killed and started again.
 */
export class StartPermit {
  readonly #semaphore: Semaphore
  readonly #orgId: string
  readonly #permitMs: number
  readonly #signal: AbortSignal
  #release: Release | undefined
  #timer: NodeJS.Timeout | undefined

  /** All sessions share `semaphore`, by organisation. */
  constructor(semaphore: Semaphore, orgId: string, permitMs: number, signal: AbortSignal) {
    this.#semaphore = semaphore
    this.#orgId = orgId
    this.#permitMs = permitMs
    this.#signal = signal
  }

  get isHeld(): boolean {
    return this.#release !== undefined
  }

  /** Waits for a permit. Returns without one after `signal` has aborted. */
  async acquire(): Promise<void> {
    if (this.isHeld || this.#signal.aborted) return
    this.#release = await this.#semaphore.acquire({ key: this.#orgId, signal: this.#signal }).catch(() => undefined)
    if (!this.isHeld) return
    // The permit's time begins here, so that a sandbox that takes files slowly holds up no other session either.
    this.#timer = setTimeout(() => this.release(), this.#permitMs).unref()
  }

  release(): void {
    clearTimeout(this.#timer)
    this.#release?.()
    this.#release = undefined
  }
}
