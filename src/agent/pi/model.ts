import { ModelRegistry, type AuthStorage, type CreateAgentSessionOptions } from '@earendil-works/pi-coding-agent'
import type { modelApis } from '../../protocol/agent.ts'
import type { HarnessSettings } from '../harness.ts'

export type PiModel = NonNullable<CreateAgentSessionOptions['model']>

/** For models that pi does not know: the least that today's have. */
const contextWindowDefault = 128_000
const maxTokensDefault = 16_384

const noCost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }

/**
 * The model as pi needs it, aimed at the gateway. Context size, price and abilities come from pi's own table where the
 * model is in it. With OpenAI's wire and an unknown model nothing is asked for that only OpenAI's own servers take.
 */
export function piModel(settings: HarnessSettings, auth: AuthStorage): PiModel {
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
