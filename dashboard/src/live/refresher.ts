import type { QueryClient, QueryKey } from '@tanstack/react-query'
import type { EventInfo } from 'atoll-sdk'
import type { LiveNews } from './organisation-log.ts'

/** Events come in bursts; what they touch is read once for a burst. */
const burstMs = 200

/**
 * Marks queries as stale by what the log says. Keys of queries begin with their noun: `['sandbox', id, …]`, `['session', id, …]`, `['images', …]`.
 * The list of sandboxes is not among them: it follows the log by itself, since thousands are not read anew for one.
 */
export class Refresher {
  readonly #queries: QueryClient
  readonly #stale = new Map<string, QueryKey>()
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(queries: QueryClient) {
    this.#queries = queries
  }

  take(news: LiveNews): void {
    if (news.type === 'missed') void this.#queries.invalidateQueries()
    if (news.type !== 'event') return
    for (const key of keysOf(news.event)) this.#stale.set(JSON.stringify(key), key)
    this.#timer ??= setTimeout(() => this.#refresh(), burstMs)
  }

  close(): void {
    clearTimeout(this.#timer)
  }

  #refresh(): void {
    this.#timer = undefined
    for (const [name, queryKey] of this.#stale) {
      // A read that is under way may be older than the event. To begin it again at each burst would never end.
      if (this.#queries.isFetching({ queryKey }) > 0) continue
      this.#stale.delete(name)
      void this.#queries.invalidateQueries({ queryKey })
    }
    if (this.#stale.size > 0) this.#timer = setTimeout(() => this.#refresh(), burstMs)
  }
}

/** What an event makes stale, by its type's first word and the ids that it names. */
function keysOf({ type, subject, sandboxId, sessionId }: EventInfo): QueryKey[] {
  const [noun = ''] = type.split('.')
  const keys: QueryKey[] = [['usage-now']]
  if (sandboxId !== undefined) keys.push(['sandbox', sandboxId])
  if (sessionId !== undefined) keys.push(['session', sessionId])
  if (noun === 'checkpoint' || type.startsWith('sandbox.checkpoint.')) keys.push(['checkpoints'])
  // They show how many sandboxes make use of them.
  if (type === 'sandbox.forked' || type === 'sandbox.stopped') keys.push(['checkpoints'])
  if (noun === 'session') keys.push(['sessions'], ['session', subject])
  if (noun === 'image') keys.push(['images'])
  if (noun === 'volume') keys.push(['volumes'])
  if (noun === 'webhook') keys.push(['webhooks'])
  if (noun === 'key') keys.push(['keys'])
  if (noun === 'organisation') keys.push(['organisations'], ['account'])
  if (noun === 'audit') keys.push(['audit'])
  if (noun === 'sandbox' || noun === 'checkpoint') keys.push(['tree'])
  return keys
}
