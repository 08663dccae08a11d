import { mkdirSync, readFileSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import {
  AuthStorage,
  createAgentSession,
  DefaultResourceLoader,
  ModelRegistry,
  SessionManager,
  SettingsManager,
  VERSION,
  type AgentSession,
  type CreateAgentSessionOptions,
} from '@earendil-works/pi-coding-agent'
import type { ModelApi } from '../../protocol/agent.ts'
import { defined } from '../../lib/defined.ts'
import { modelName, type Harness, type HarnessSession, type HarnessSettings } from '../harness.ts'
import { skillPaths, sandboxPrompt } from '../instructions.ts'
import { allowedToolNames, ownTools } from './tools.ts'
import { PiTurn } from './turn.ts'

/** The default harness: pi's SDK in this process, its conversation in `<stateDir>/pi/conversation.jsonl`. */
export const piHarness: Harness = {
  name: 'pi',
  version: VERSION,

  async open(settings: HarnessSettings): Promise<HarnessSession> {
    // No downloads of helper programs, no checks for new versions.
    process.env['PI_OFFLINE'] = '1'
    const session = await openSession(settings)
    return {
      sessionId: session.sessionId,
      tools: session.getActiveToolNames(),
      model: modelName(settings),
      run: (turn, emit, signal) => new PiTurn(session, settings, emit, signal).run(turn),
      async close() {
        await session.abort()
        session.dispose()
      },
    }
  },
}

async function openSession(settings: HarnessSettings): Promise<AgentSession> {
  const { cwd, gateway } = settings
  const agentDir = join(settings.stateDir, 'pi')
  mkdirSync(agentDir, { recursive: true })
  const conversation = join(agentDir, 'conversation.jsonl')
  dropTornLine(conversation)

  const authStorage = AuthStorage.inMemory()
  authStorage.setRuntimeApiKey(settings.model.provider, gateway.token)
  const settingsManager = SettingsManager.inMemory({
    // The gateway retries transient failures, and PiTurn continues answers that broke off. pi itself must not retry.
    retry: { enabled: false, provider: { maxRetries: 0 } },
    enableInstallTelemetry: false,
  })
  const resourceLoader = new DefaultResourceLoader({
    cwd,
    agentDir,
    settingsManager,
    noExtensions: true,
    noSkills: true,
    noPromptTemplates: true,
    noThemes: true,
    additionalSkillPaths: skillPaths(settings.skillsDir, settings.skillFiles ?? []),
    // Not `appendSystemPrompt`, which reads a file when the text is its path.
    appendSystemPromptOverride: () =>
      settings.systemPrompt ? [sandboxPrompt, settings.systemPrompt] : [sandboxPrompt],
  })
  await resourceLoader.reload()
  const { session } = await createAgentSession({
    cwd,
    agentDir,
    authStorage,
    modelRegistry: ModelRegistry.inMemory(authStorage),
    model: piModel(settings, authStorage),
    resourceLoader,
    settingsManager,
    sessionManager: SessionManager.open(conversation, agentDir, cwd),
    tools: allowedToolNames(settings.allowedTools),
    customTools: ownTools(cwd),
  })
  return session
}

/** A kill during a write leaves half a line. pi would append the next line to it and lose both. */
function dropTornLine(path: string): void {
  let content: Buffer
  try {
    content = readFileSync(path)
  } catch {
    return
  }
  const end = content.lastIndexOf(10) + 1
  if (end < content.length) truncateSync(path, end)
}

type PiModel = NonNullable<CreateAgentSessionOptions['model']>

/** For models that pi does not know: the minimum of current models. */
const contextWindowDefault = 128_000
const maxTokensDefault = 16_384

const noCost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }

/**
 * The model as pi needs it, with the gateway as its server. Context size, price and abilities come from pi's own table if it has the
 * model. For an unknown model on OpenAI's wire, features of OpenAI's own servers are turned off.
 */
function piModel(settings: HarnessSettings, auth: AuthStorage): PiModel {
  const { provider, id } = settings.model
  const api = settings.model.api ?? (provider === 'openai' ? 'openai-completions' : 'anthropic-messages')
  const known = ModelRegistry.inMemory(auth).find(provider, id)
  return {
    id,
    name: id,
    api,
    provider,
    baseUrl: settings.gateway.url.replace(/\/+$/, '') + gatewayPath(api),
    reasoning: known?.reasoning ?? false,
    ...defined({ thinkingLevelMap: known?.thinkingLevelMap }),
    input: known?.input ?? ['text'],
    cost: known?.cost ?? noCost,
    // The demo model depends on messages that a compaction would remove.
    contextWindow: known?.contextWindow ?? (provider === 'demo' ? 100_000_000 : contextWindowDefault),
    maxTokens: known?.maxTokens ?? maxTokensDefault,
    ...(api === 'openai-completions' &&
      !known && {
        compat: {
          supportsStore: false,
          supportsDeveloperRole: false,
          supportsReasoningEffort: false,
          maxTokensField: 'max_tokens',
        },
      }),
  }
}

function gatewayPath(api: ModelApi): string {
  // Anthropic's client adds /v1/messages itself, OpenAI's only /chat/completions or /responses.
  return api === 'anthropic-messages' ? '/anthropic' : '/openai/v1'
}
