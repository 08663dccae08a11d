import { Atoll, Sandbox } from '../../sdk/src/index.ts'
import { readConfig } from './config-file.ts'
import { UsageError } from './exit-codes.ts'
import { checkedId } from './options.ts'
import { note } from './output.ts'

/** Options that every command takes. */
export interface Flags {
  url?: string
  key?: string
  context?: string
  /** Seconds that the server may take for one answer. */
  requestTimeout?: number
  json?: boolean
}

export interface Settings {
  url: string
  apiKey: string | undefined
}

/** A server answers sooner, unless something is wrong with it or the way to it. */
const silenceMs = 10_000

export const defaultUrl = 'http://127.0.0.1:4100'

/**
 * Flags first, then the environment, then the saved context. A context that a flag names goes before the environment, and a saved key goes
 * only to the server for which it was saved.
 */
export async function settingsOf(flags: Flags, env: NodeJS.ProcessEnv = process.env): Promise<Settings> {
  const url = flags.url ?? (flags.context === undefined ? env['ATOLL_URL'] || undefined : undefined)
  const apiKey = flags.key ?? (flags.context === undefined ? env['ATOLL_API_KEY'] || undefined : undefined)
  const isComplete = url !== undefined && apiKey !== undefined
  const saved = isComplete && flags.context === undefined ? undefined : await savedContext(flags.context)
  const chosen = checkedUrl(url ?? saved?.url ?? defaultUrl)
  const savedKey = saved !== undefined && checkedUrl(saved.url) === chosen ? saved.apiKey : undefined
  return { url: chosen, apiKey: checkedKey(apiKey ?? savedKey) }
}

export async function clientOf(flags: Flags): Promise<Atoll> {
  const { url, apiKey } = await settingsOf(flags)
  // The SDK would take the key of the environment for another server.
  const timeout = flags.requestTimeout === undefined ? {} : { requestTimeoutMs: flags.requestTimeout * 1000 }
  const onIgnored = (names: string[]) => note(`the server does not know ${names.join(', ')}, which was left out`)
  return new Atoll({ url, apiKey: apiKey ?? '', fetch: fetchWithNotice, onIgnored, ...timeout })
}

/** A sandbox by its id or name. Throws for what is neither before the server is asked. */
export async function sandboxOf(id: string, flags: Flags): Promise<Sandbox> {
  const name = checkedId(id, 'sb-', 'sandbox')
  return await Sandbox.connect(name, { client: await clientOf(flags) })
}

/** On a terminal it says when the server lets a person wait. What is sent as a stream shows its own progress. */
async function fetchWithNotice(...[input, init]: Parameters<typeof fetch>): Promise<Response> {
  const isShown = process.stderr.isTTY && !(init?.body instanceof ReadableStream)
  const { href } = new URL(input instanceof Request ? input.url : input)
  const say = () => note(`no answer for ${silenceMs / 1000} s from ${href}; Ctrl-C ends the wait`)
  const timer = isShown ? setInterval(say, silenceMs) : undefined
  try {
    return await fetch(input, init)
  } finally {
    clearInterval(timer)
  }
}

async function savedContext(name: string | undefined) {
  const { current, contexts } = await readConfig()
  const wanted = name ?? current
  if (wanted === undefined) return undefined
  const context = Object.hasOwn(contexts, wanted) ? contexts[wanted] : undefined
  if (context === undefined) {
    const names = Object.keys(contexts).join(', ') || 'none'
    throw new UsageError(`there is no context ${JSON.stringify(wanted)}; there are: ${names}`)
  }
  return context
}

export function checkedUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:') {
    throw new UsageError(`${JSON.stringify(text)} is no URL of a server: it must begin with http:// or https://`)
  }
  return url.href.replace(/\/+$/, '')
}

/** A key goes into a header; the message must not show it. */
export function checkedKey(key: string | undefined): string | undefined {
  if (key !== undefined && !/^[\x21-\x7e]+$/.test(key)) {
    throw new UsageError('the API key is empty or holds blanks or characters that no key has')
  }
  return key
}
