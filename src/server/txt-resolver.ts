import { Resolver } from 'node:dns/promises'
import type { TxtResolver } from '../sandbox/index.ts'

export interface TxtResolverOptions {
  /** `address` or `address:port`, IPv6 in brackets with a port. Default: the servers of the machine. */
  servers?: readonly string[]
  /** Timeout of the first query per server; the second query has twice as long. Default one second. */
  tryMs?: number
}

const triesMax = 2
const tryMsDefault = 1000
/** Bounds the lookup over all servers; the last servers may not be queried. */
const triesPerLookup = 5
/** DNS codes for an empty answer (RFC 2308 § 2). */
const nothing = new Set(['ENOTFOUND', 'ENODATA'])

/** See `TxtResolver`. The format limits an answer to 64 KiB, and answers to other questions are ignored. */
export function createTxtResolver({ servers = [], tryMs = tryMsDefault }: TxtResolverOptions = {}): TxtResolver {
  return {
    async resolveTxt(name, signal) {
      signal.throwIfAborted()
      // One resolver per lookup: it can be cancelled alone, has no cache, and reads the machine's current servers.
      const resolver = new Resolver({ timeout: tryMs, tries: triesMax })
      if (servers.length > 0) resolver.setServers(servers)
      const cancel = () => resolver.cancel()
      const timer = setTimeout(cancel, tryMs * triesPerLookup)
      signal.addEventListener('abort', cancel, { once: true })
      try {
        return (await resolver.resolveTxt(name)).map((strings) => strings.join(''))
      } catch (error) {
        if (nothing.has((error as NodeJS.ErrnoException).code ?? '')) return []
        throw error
      } finally {
        clearTimeout(timer)
        signal.removeEventListener('abort', cancel)
      }
    },
  }
}
