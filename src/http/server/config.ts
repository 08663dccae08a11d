import type { FastifyRequest } from 'fastify'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { LogStreams } from '../../events/index.ts'
import type { Log } from '../../lib/log.ts'
import type { ImageService } from '../../image/index.ts'
import type { Keys, Operator, Organisations } from '../../organisation/index.ts'
import type { DiskReport, PreviewTarget, SandboxCounts, SandboxService } from '../../sandbox/index.ts'
import type { Audit, AuditStore } from '../../organisation/audit/index.ts'
import type { ComputePrices, UsageReports } from '../../organisation/usage/index.ts'
import type { Secrets } from '../../secret/index.ts'
import type { Webhooks } from '../../webhook/index.ts'
import type { SessionService } from '../../session/index.ts'
import type { BrowserSessions } from './browser-sessions.ts'
import type { IdempotencyPort } from './idempotency.ts'

/** Bounds the request line and the headers together. */
export const headerBytesMax = 32 * 1024

/** Bounds of the HTTP half (`ATOLL_LIMITS`); the services have their own. */
export const defaultHttpLimits = {
  bodyBytesMax: 1024 * 1024,
  /** Session creation carries skills. */
  sessionBodyBytesMax: 16 * 1024 * 1024,
  /** Manifests of images carry files. */
  manifestBytesMax: 64 * 1024 * 1024,
  uploadBytesMax: 5 * 1024 * 1024 * 1024,
  requestsPerSecond: 100,
  requestBurst: 200,
  /**
   * A client that takes no part of an answer for this long is dropped; that of an event stream comes back with `Last-Event-ID`. The
   * kernel reports what a client takes in steps of up to a third of a send buffer (`tcp_wmem`: 4 MiB), so 25 kB/s are enough.
   */
  streamStallMs: 60_000,
  /** Open event streams: per token of a session, per session, per organisation, and in total. */
  eventStreamsPerTokenMax: 32,
  eventStreamsPerSessionMax: 256,
  eventStreamsPerOrganisationMax: 2048,
  eventStreamsMax: 8192,
  /** WebSockets to commands and terminals of one sandbox, and of all sandboxes of one organisation. */
  socketsPerSandboxMax: 64,
  socketsPerOrganisationMax: 512,
  /** Connections to ports by a WebSocket, of one sandbox and of one organisation. */
  tunnelsPerSandboxMax: 256,
  tunnelsPerOrganisationMax: 1024,
  /** An export holds one page of the stream, some megabytes. */
  exportsPerOrganisationMax: 32,
  /** Uploads and downloads of files, of all sandboxes of one organisation. Each has a connection to its guest. */
  fileTransfersPerOrganisationMax: 512,
}

export type HttpLimits = typeof defaultHttpLimits

export interface HttpConfig {
  /** Origin under which clients reach the API, for signed URLs; without it the request's own `Host` serves. */
  publicUrl?: string
  /** Origin whose host previews lie under. */
  previewUrl: string
  region: string
  workerId: string
  /** File of the SDK's package; its name has the version. */
  sdkPackage: string
  /** Folder of the built dashboard. Without an `index.html` there is none. */
  dashboardDir: string
  /** Folder of the built documentation. Without a `404.html` there is none. */
  docsDir: string
  /** Proxies whose `X-Forwarded-*` headers are believed: addresses or CIDR blocks, or all. Default none. */
  trustProxy?: boolean | string[]
  limits?: Partial<HttpLimits>
}

export interface HttpDeps {
  sandboxes: SandboxService
  images: ImageService
  sessions: SessionService
  browserSessions: BrowserSessions
  organisations: Organisations
  keys: Keys
  operator: Operator
  webhooks: Webhooks
  secrets: Secrets
  audit: Audit
  auditStore: Pick<AuditStore, 'list' | 'page' | 'head' | 'tellHead'>
  usage: Pick<UsageReports, 'report' | 'sandbox' | 'month'>
  prices: ComputePrices
  idempotency: IdempotencyPort
  events: Pick<LogStreams, 'page' | 'follow'>
  preview: PreviewPort
  mcp: McpPort
  config: HttpConfig
  log: Log
  /** Throws when the server cannot serve: asked by `/readyz`. */
  ready(): Promise<void>
  /** Sandboxes of all organisations by state: asked at each scrape of `/metrics`. */
  sandboxCounts(): Promise<SandboxCounts>
  /** Warm sandboxes by the image or checkpoint that they come from. */
  warmCounts(): Record<string, number>
  /** Capacity of the disks; undefined where it cannot be measured. Asked at each scrape of `/metrics`. */
  disk(): DiskReport | undefined
  /** Asked by `GET /api/host`. `isFresh`: with checks of this moment; default false. */
  host(options?: { isFresh?: boolean }): Promise<HostReport>
  /** Asked by `GET /api/operator/quarantine`. */
  quarantine(): Promise<QuarantineReport>
}

/** What the machine of this server has, and whether it is fit. */
export interface HostReport {
  /** Release of the kernel. */
  kernel: string
  /** Name of the driver. */
  runtime: string
  startedAt: Date
  capacity: {
    cpuCount: number
    memoryBytes: number
    memoryAvailableBytes: number
    diskBytes: number
    diskAvailableBytes: number
    runningSandboxes: number
    warmSandboxes: number
  }
  checks: { name: string; status: 'works' | 'missing' | 'fails'; detail: string }[]
  checkedAt: Date
}

/** Sandboxes and checkpoints that the server holds back; of many the oldest. */
export interface QuarantineReport {
  count: number
  items: {
    id: string
    kind: 'sandbox' | 'checkpoint'
    /** In words. */
    why: string
    /** Of a checkpoint whose record can be read. */
    sizeBytes: number | null
    since: Date
    /** `null`: it stays. */
    removedAt: Date | null
  }[]
}

/**
 * Answers a request of the Model Context Protocol, whose body is parsed already; its tools act with this key. `origin` is the address at which
 * the client has reached the server. Throws `invalid_request` for a list of tools that names none.
 */
export type McpPort = (
  request: Request,
  options: { apiKey: string; body: unknown; tools?: string; origin: string },
) => Promise<Response>

/** Takes requests that are for a preview. `preview/` implements it. */
export interface PreviewPort {
  /** Whether a request is for a preview, by its `Host` header. Asks the database for names outside the preview host. */
  claims(request: IncomingMessage): boolean | Promise<boolean>
  /**
   * Whether the proxy in front may get a certificate for this name. `peer` is the address of the asker; false unless it is a proxy
   * on this machine or a trusted one. Throws `rate_limited`: the proxy's clients choose the names.
   */
  mayHaveCertificate(hostname: string, peer: string): Promise<boolean>
  /** A token that lets whoever has it open a preview at this host name within a minute. `tokenHash`: of the token that the preview demands. */
  visit(preview: { hostname: string; tokenHash: string }): { token: string; expiresAt: Date }
  handle(request: IncomingMessage, response: ServerResponse): void
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  /**
   * Answers a request of the API with what the server at a port answers, without the key and cookies of the one and what acts in the origin
   * of the other. Resolves when the response has closed. Rejects with a `ServiceError` while nothing is sent.
   */
  forward(job: {
    request: IncomingMessage
    response: ServerResponse
    target: PreviewTarget
    path: string
  }): Promise<void>
  /** Sets the one listener for the status of each answer, for metrics. */
  onAnswer(listener: (statusCode: number) => void): void
  /** Ends WebSockets and idle connections; requests in flight finish. The last call. */
  drain(): void
}

/** Where the client of a request reaches the API. */
export function apiOrigin({ publicUrl }: HttpConfig, request: FastifyRequest): string {
  return publicUrl?.replace(/\/+$/, '') ?? `${request.protocol}://${request.host}`
}
