import type { AgentConfig, CreateSessionOptions } from 'atoll-sdk'
import { quoted, type Commands } from '../../../ui/commands.tsx'

export interface MountForm {
  name: string
  path: string
  readOnly: boolean
}

/** The form of a new session, as it is typed: an empty text is the default. */
export interface NewSessionForm {
  prompt: string
  userId: string
  name: string
  model: string
  harness: 'pi' | 'claude' | 'acp'
  /** Of the harness `acp`. */
  command: string
  systemPrompt: string
  maxCostUsd: string
  maxTokens: string
  checkpoints: '' | 'turn' | 'disk' | 'none'
  checkpointId: string
  secretStore: string
  volumes: readonly MountForm[]
}

export const emptyForm: NewSessionForm = {
  prompt: '',
  userId: 'dashboard',
  name: '',
  model: '',
  harness: 'pi',
  command: '',
  systemPrompt: '',
  maxCostUsd: '',
  maxTokens: '',
  checkpoints: '',
  checkpointId: '',
  secretStore: '',
  volumes: [],
}

/** Names of the fields in the API, by which refusals are put beside them. */
export const fieldNames = [
  'prompt',
  'user_id',
  'name',
  'agent_config.model',
  'agent_config.harness',
  'agent_config.system_prompt',
  'agent_config.max_cost_usd',
  'agent_config.max_tokens',
  'checkpoint_id',
  'secret_store',
  'volumes',
] as const

/** What is not empty. */
function given<Fields extends object>(fields: Fields): Partial<Fields> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== '' && value !== undefined),
  ) as Partial<Fields>
}

function agentOf(form: NewSessionForm): AgentConfig {
  const { model, harness, command, systemPrompt, maxCostUsd, maxTokens, checkpoints } = form
  return given({
    model,
    harness: harness === 'acp' ? `acp:${command.trim()}` : harness === 'pi' ? '' : harness,
    systemPrompt,
    maxCostUsd: maxCostUsd === '' ? undefined : Number(maxCostUsd),
    maxTokens: maxTokens === '' ? undefined : Number(maxTokens),
    checkpoints: checkpoints === '' ? undefined : checkpoints,
  })
}

export function optionsOf(form: NewSessionForm): CreateSessionOptions {
  const { prompt, userId, name, checkpointId, secretStore, volumes } = form
  const agent = agentOf(form)
  const mounts = volumes.filter((volume) => volume.name !== '' || volume.path !== '')
  return {
    prompt,
    userId,
    ...given({ name, checkpointId, secretStore }),
    ...(Object.keys(agent).length > 0 ? { agent } : {}),
    ...(mounts.length > 0 ? { volumes: mounts.map((mount) => ({ ...mount })) } : {}),
  }
}

/** The same by other means. */
export function commandsOf(form: NewSessionForm): Commands {
  const options = optionsOf(form)
  const { prompt, userId, name, checkpointId, secretStore, agent, volumes } = options
  const flag = (flagName: string, value: string | undefined) =>
    value === undefined ? '' : ` --${flagName} ${quoted(value)}`
  const mounts = (volumes ?? []).map(({ name: volume, path, readOnly }) =>
    flag('volume', `${volume}:${path}${readOnly === true ? ':ro' : ''}`),
  )
  const agentConfig = agent && {
    model: agent.model,
    harness: agent.harness,
    system_prompt: agent.systemPrompt,
    max_cost_usd: agent.maxCostUsd,
    max_tokens: agent.maxTokens,
    checkpoints: agent.checkpoints,
  }
  const json = {
    ...{ prompt, user_id: userId, name, checkpoint_id: checkpointId, secret_store: secretStore, volumes },
    agent_config: agentConfig,
  }
  // The command line sets no budget when it creates: `atoll session set` does.
  const cli = `atoll session new ${quoted(prompt)} --user ${quoted(userId)}${flag('name', name)}${flag('model', agent?.model)}${flag('harness', agent?.harness)}${flag('checkpoint', checkpointId)}${flag('secret-store', secretStore)}${mounts.join('')}`
  const isWhole =
    agent?.systemPrompt === undefined &&
    agent?.maxCostUsd === undefined &&
    agent?.maxTokens === undefined &&
    agent?.checkpoints === undefined
  return {
    ...(isWhole ? { cli } : {}),
    curl: { path: '/v1/sessions', json },
    sdk: `const session = await Session.create(${JSON.stringify(options)})`,
  }
}
