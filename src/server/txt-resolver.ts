import { Resolver } from 'node:dns/promises'
import type { TxtResolver } from '../sandbox/index.ts'

export interface TxtResolverOptions {
  /** `address` or `address:port`, IPv6 in brackets when a port follows. Default those of the machine. */
  servers?: readonly string[]
  /** For one server to answer; it is asked twice, the second time for twice as long. Default one second. */
  tryMs?: number
}

const triesMax = 2
const tryMsDefault = 1000
/** With several servers each has its tries; the last ones may not come to it. */
const triesPerLookup = 5
/** What DNS calls an answer that there is nothing (RFC 2308 § 2). */
const nothing = new Set(['ENOTFOUND', 'ENODATA'])

/** See `TxtResolver`. An answer has 64 KiB at most, by the format itself, and what does not match the question is ignored. */
export function createTxtResolver({ servers = [], tryMs = tryMsDefault }: TxtResolverOptions = {}): TxtResolver {
  return {
    async resolveTxt(name, signal) {
      signal.throwIfAborted()
      // One for each lookup: it can be cancelled alone, it remembers no answers, and it reads the machine's servers anew.
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
