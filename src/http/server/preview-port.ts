import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'

/** What the server hands requests over to when their `Host` names a preview; `preview/` implements it. */
export interface PreviewPort {
  /** Whether this host name (as sent, with or without port) belongs to a preview. Asks the database for names not our own. */
  claims(host: string | undefined): boolean | Promise<boolean>
  /**
   * Whether the proxy in front may get a certificate for this name. `peer` is the address of who asks; only a proxy on this
   * machine or a trusted one hears of any name. Throws `rate_limited`, since the names are its clients' choice.
   */
  mayHaveCertificate(hostname: string, peer: string): Promise<boolean>
  handle(request: IncomingMessage, response: ServerResponse): void
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  /** Registers the one listener that learns of each answer's status, for metrics. */
  onAnswer(listener: (statusCode: number) => void): void
  /** Ends upgraded sockets and lets go of all that is not a request under way, which finishes. The last call. */
  drain(): void
}
