import type { ModelProxy } from '../model-proxy.ts'

/**
 * How programs find their model: the names that Anthropic's and OpenAI's clients read. What the session's own environment says
 * goes before, but an address and its keys go together: the proxy takes no key but its own, and no other server is told that one.
 */
export function programEnvironment(
  own: NodeJS.ProcessEnv,
  modelId: string,
  proxy: Pick<ModelProxy, 'url' | 'credential'>,
): NodeJS.ProcessEnv {
  const environment: NodeJS.ProcessEnv = {
    OPENAI_MODEL: modelId,
    ANTHROPIC_MODEL: modelId,
    IS_SANDBOX: '1',
    ...own,
  }
  if (!own['OPENAI_BASE_URL']) {
    environment['OPENAI_BASE_URL'] = `${proxy.url}/openai/v1`
    environment['OPENAI_API_KEY'] = proxy.credential
  }
  if (!own['ANTHROPIC_BASE_URL']) {
    environment['ANTHROPIC_BASE_URL'] = `${proxy.url}/anthropic`
    environment['ANTHROPIC_API_KEY'] = proxy.credential
    // Clients prefer it to the key.
    delete environment['ANTHROPIC_AUTH_TOKEN']
  }
  return environment
}
