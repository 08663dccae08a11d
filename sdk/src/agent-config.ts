export interface AgentConfig {
  /** Added to the prompt of the harness. */
  systemPrompt?: string | undefined
  /** Files of the sandbox, by path. */
  skills?: Record<string, string> | undefined
  allowedTools?: readonly string[] | undefined
  cwd?: string | undefined
  /** Such as `anthropic/claude-sonnet-4-5`. */
  model?: string | undefined
  /** `pi`, `claude` or `acp:<command>`. */
  harness?: string | undefined
  /** Calls of the model in one turn. */
  maxTurns?: number | undefined
  maxTokens?: number | undefined
  maxCostUsd?: number | undefined
  envs?: Record<string, string> | undefined
  /** What is kept after each turn: disk and memory, the disk alone, or nothing. Default: what the server keeps. */
  checkpoints?: 'turn' | 'disk' | 'none' | undefined
  /** Names of `envs` that a fork for another person does not get. */
  secretEnvs?: readonly string[] | undefined
  /** A turn that fails makes a capsule of scope `read`. */
  capsuleOnError?: boolean | undefined
}

/** What of it changes while a session runs. */
export type SessionChange = Pick<
  AgentConfig,
  'maxTokens' | 'maxCostUsd' | 'checkpoints' | 'secretEnvs' | 'capsuleOnError'
>

/** As the API has it. */
export function configOf(agent: AgentConfig) {
  return {
    system_prompt: agent.systemPrompt,
    skills: agent.skills,
    allowed_tools: agent.allowedTools,
    cwd: agent.cwd,
    model: agent.model,
    harness: agent.harness,
    max_turns: agent.maxTurns,
    envs: agent.envs,
    ...changeOf(agent),
  }
}

export function changeOf(change: SessionChange) {
  return {
    max_tokens: change.maxTokens,
    max_cost_usd: change.maxCostUsd,
    checkpoints: change.checkpoints,
    secret_envs: change.secretEnvs,
    capsule_on_error: change.capsuleOnError,
  }
}
