import type { Log } from '../../lib/log.ts'
import type { OrganisationStore } from '../../organisation/index.ts'
import type { SandboxCounts, SandboxService } from '../../sandbox/index.ts'
import type { SessionService } from '../../session/index.ts'
import type { IdempotencyPort } from './idempotency.ts'
import type { PreviewPort } from './preview-port.ts'

/** The head of a request: its address and headers. */
export const headerBytesMax = 32 * 1024

/** Bounds of the HTTP half (`ATOLL_LIMITS`); the services have their own. */
export interface HttpLimits {
  bodyBytesMax: number
  /** Session creation carries skills. */
  sessionBodyBytesMax: number
  uploadBytesMax: number
  requestsPerSecond: number
  requestBurst: number
  /**
   * A client that takes no part of an answer for this long is dropped; that of an event stream comes back with `Last-Event-ID`. The kernel
   * tells of what a client takes in steps of up to a third of a send buffer (`tcp_wmem`: 4 MiB).
   */
  streamStallMs: number
  /** Event streams that are open with one token of a session, of one session, of one organisation, and all together. */
  eventStreamsPerTokenMax: number
  eventStreamsPerSessionMax: number
  eventStreamsPerOrganisationMax: number
  eventStreamsMax: number
  /** WebSockets to commands and terminals of one sandbox, and of all sandboxes of one organisation. */
  socketsPerSandboxMax: number
  socketsPerOrganisationMax: number
  /** Each holds a page of the stream, of some megabytes. */
  exportsPerOrganisationMax: number
}

export const defaultHttpLimits: HttpLimits = {
  bodyBytesMax: 1024 * 1024,
  sessionBodyBytesMax: 16 * 1024 * 1024,
  uploadBytesMax: 5 * 1024 * 1024 * 1024,
  requestsPerSecond: 100,
  requestBurst: 200,
  // At 25 kB/s a step takes as long.
  streamStallMs: 60_000,
  eventStreamsPerTokenMax: 32,
  eventStreamsPerSessionMax: 256,
  eventStreamsPerOrganisationMax: 2048,
  eventStreamsMax: 8192,
  socketsPerSandboxMax: 64,
  socketsPerOrganisationMax: 512,
  exportsPerOrganisationMax: 32,
}

export interface HttpConfig {
  /** Origin under which clients reach the API, for signed URLs; without it the request's own `Host` serves. */
  publicUrl?: string
  /** Origin whose host previews lie under. */
  previewUrl: string
  region: string
  workerId: string
  /** Proxies whose `X-Forwarded-*` headers are believed: addresses or CIDR blocks, or all. Default none. */
  trustProxy?: boolean | string[]
  limits?: Partial<HttpLimits>
}

/** What the server stands on. */
export interface HttpDeps {
  sandboxes: SandboxService
  sessions: SessionService
  organisations: OrganisationStore
  idempotency: IdempotencyPort
  preview: PreviewPort
  config: HttpConfig
  log: Log
  /** Throws when the server cannot serve: asked by `/readyz`. */
  ready(): Promise<void>
  /** Sandboxes of all organisations by state: asked at each scrape of `/metrics`. */
  sandboxCounts(): Promise<SandboxCounts>
}
