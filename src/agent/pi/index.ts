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
import type { modelApis } from '../../protocol/agent.ts'
import type { Harness, HarnessSession, HarnessSettings } from '../harness.ts'
import { skillPaths, surroundings } from '../instructions.ts'
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
    const { provider, id } = settings.model
    return {
      sessionId: session.sessionId,
      tools: session.getActiveToolNames(),
      model: provider === 'demo' ? 'demo' : `${provider}/${id}`,
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
    // The gateway tries again what may pass; PiTurn takes up answers that broke off. Nobody else shall.
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
    // Not `appendSystemPrompt`: that one takes a text which is the path of a file for the file.
    appendSystemPromptOverride: () => (settings.systemPrompt ? [surroundings, settings.systemPrompt] : [surroundings]),
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

/** A kill in the middle of a write leaves half a line, to which pi would glue the next one and lose both. */
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

/** For models that pi does not know: the least that today's have. */
const contextWindowDefault = 128_000
const maxTokensDefault = 16_384

const noCost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }

/**
 * The model as pi needs it, aimed at the gateway. Context size, price and abilities come from pi's own table where the
 * model is in it. With OpenAI's wire and an unknown model nothing is asked for that only OpenAI's own servers take.
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
    ...(known?.thinkingLevelMap ? { thinkingLevelMap: known.thinkingLevelMap } : {}),
    input: known?.input ?? ['text'],
    cost: known?.cost ?? noCost,
    // The demo model forgets what a compaction takes away, and reads no more than the last messages anyway.
    contextWindow: known?.contextWindow ?? (provider === 'demo' ? 100_000_000 : contextWindowDefault),
    maxTokens: known?.maxTokens ?? maxTokensDefault,
    ...(api === 'openai-completions' && !known
      ? {
          compat: {
            supportsStore: false,
            supportsDeveloperRole: false,
            supportsReasoningEffort: false,
            maxTokensField: 'max_tokens',
          },
        }
      : {}),
  }
}

function gatewayPath(api: (typeof modelApis)[number]): string {
  // Anthropic's client adds /v1/messages itself, OpenAI's only /chat/completions or /responses.
  return api === 'anthropic-messages' ? '/anthropic' : '/openai/v1'
}
