import { mkdir } from 'node:fs/promises'
import { hostname } from 'node:os'
import type { Logger } from 'pino'
import { createMemoryBus } from '../events/in-process-bus.ts'
import { ServiceError } from '../errors.ts'
import { anthropicBaseUrlDefault, createGateway, openaiBaseUrlDefault, startDemoModel } from '../gateway/index.ts'
import { createHttpServer } from '../http/server/server.ts'
import { sha256 } from '../lib/secret.ts'
import { createPreviewProxy } from '../preview/preview-proxy.ts'
import { createGuest } from '../runtime/guest-client/index.ts'
import { exists } from '../runtime/exists.ts'
import { hostToolIn, unmetRequirements } from '../runtime/doctor/index.ts'
import { createOciDriver, ociRuntimes } from '../runtime/index.ts'
import { createSandboxService, defaultSandboxLimits } from '../sandbox/index.ts'
import { createSessionService } from '../session/index.ts'
import { cachedSandboxStore } from '../store/index.ts'
import type { Store } from '../store/index.ts'
import { configureApiKey, makeFirstApiKey } from './api-key.ts'
import type { Config } from './config.ts'
import { gatewayPorts } from './gateway-ports.ts'
import { lockDataDir } from './data-dir-lock.ts'
import { missingHarness } from './harnesses.ts'
import { openOwnStore } from './installation.ts'
import { listen } from './listen.ts'
import { signingSecret } from './secrets.ts'
import { createTxtResolver } from './txt-resolver.ts'

export interface App {
  /** The key that this start has made and shown. */
  freshKey: string | undefined
  /** Ends requests, then lets go of everything; sandboxes run on. A repeat is harmless. */
  close(): Promise<void>
}

export interface AppEvents {
  /**
   * The database is gone for good: another server has taken it and settled the records of our sandboxes, so that nothing that this
   * process knows is true any more, or the embedded one has ended by itself (`error`).
   */
  databaseGone: (why: string, error?: Error) => void
  /** Shows the key that a first start makes. When it throws, no key was made. */
  showKey: (key: string) => void
}

const graceMs = 10_000
const purgeEveryMs = 3_600_000
const idempotencyKeptMs = 24 * 3_600_000

/**
 * Puts an implementation behind every port and starts them in the order in which they need one another. What was started is
 * closed in the opposite order, also when a later part cannot start.
 */
export async function startApp(config: Config, log: Logger, events: AppEvents): Promise<App> {
  await assertFitMachine(config)
  await using started = new AsyncDisposableStack()
  await mkdir(config.dataDir, { recursive: true, mode: 0o711 })
  started.use(await lockDataDir(config.dataDir))

  const store = await openOwnStore(config, {
    lockChanged(lock) {
      if (lock === 'held') log.info('the database is held again')
      if (lock === 'lost')
        log.warn('the connection that holds the database is lost; nothing is served until it is back')
      if (lock === 'gone') events.databaseGone('another server has taken the database')
    },
    died: (error) => events.databaseGone('the embedded database has ended', error),
    log,
  })
  started.defer(() => store.close())
  const bus = createMemoryBus({ onListenerError: (error) => log.error({ err: error }, 'a listener of the bus failed') })
  started.defer(() => bus.close())

  const secret = config.signingSecret ?? (await signingSecret(config.dataDir))
  const driver = createOciDriver({
    runtime: ociRuntimes[config.runtime],
    dataDir: config.dataDir,
    imageDir: config.imageDir,
    subnet: config.subnet,
    leaveHostFirewall: config.leaveHostFirewall,
    lazyMemoryBytesMin: config.lazyMemoryBytesMin,
    quarantineKeptMs: config.quarantineKeptMs,
    mayQuarantineMany: config.mayQuarantineMany,
    log: (message) => log.info(message),
    ...(config.diskPoolBytes > 0 ? { diskPoolBytes: config.diskPoolBytes } : {}),
  })
  const sandboxes = createSandboxService({
    store: cachedSandboxStore(store.sandboxes),
    driver,
    guest: (sandboxId) => createGuest((signal) => driver.dial(sandboxId, signal), { sandboxId }),
    bus,
    log,
    limits: { ...defaultSandboxLimits, ...config.limits.sandbox, runningSandboxesMax: config.runningSandboxesMax },
    previewDomain: {
      host: config.previewUrl.hostname,
      tls: config.previewUrl.protocol === 'https:',
      ownHosts: [config.previewUrl.hostname, ...config.apiHosts],
      isCustomAllowed: config.publicUrl !== undefined,
    },
    txtResolver: createTxtResolver({ servers: config.dnsServers }),
    signingSecret: secret,
  })
  await sandboxes.start()
  started.defer(() => sandboxes.close())

  const demo = await startDemoModel()
  started.defer(() => demo.close())
  const { anthropic, openai } = config
  const gateway = createGateway({
    ...gatewayPorts(store.sessions, config.prices),
    upstreams: {
      demo: { baseUrl: demo.baseUrl },
      ...(anthropic ? { anthropic: { baseUrl: anthropicBaseUrlDefault, ...anthropic } } : {}),
      ...(openai ? { openai: { baseUrl: openaiBaseUrlDefault, ...openai } } : {}),
    },
    sandboxAt: (peerAddress) => driver.sandboxAt(peerAddress),
    limits: { retryMs: config.modelRetryMs },
    log,
  })
  const { listenHost, listenPort, insideHost } = driver.gateway()
  await listen('the model gateway', gateway, { host: listenHost, port: listenPort })
  started.defer(() => gateway.close())

  const sessions = createSessionService({
    store: store.sessions,
    sandboxes,
    bus,
    signingSecret: secret,
    log,
    config: {
      defaultModel: config.model,
      models: config.models,
      prices: config.prices,
      harnesses: ['pi', 'claude', 'acp:'],
      missingHarness: (harness) => missingHarness(config.imageDir, harness),
      gatewayUrl: `http://${insideHost}:${listenPort}`,
      previewUrl: (host) => previewUrl(config.previewUrl, host),
      limits: config.limits.session,
    },
  })
  await sessions.start()
  started.defer(() => sessions.close())

  let hasKeys = false
  const { requestsPerSecond = Number.MAX_SAFE_INTEGER } = config
  const http = await createHttpServer({
    sandboxes,
    sessions,
    organisations: store.organisations,
    idempotency: store.idempotency,
    preview: createPreviewProxy({
      previews: sandboxes.previews,
      bus,
      previewHost: config.previewUrl.hostname,
      apiHosts: config.apiHosts,
      ...(config.previewUrl.protocol === 'https:' ? { edge: { port: Number(config.previewUrl.port) || 443 } } : {}),
      trustProxy: config.trustProxy,
      // Also one that was configured for an earlier start: it is good as long as no other one is.
      apiKeyHashes: [
        ...(config.apiKey === undefined ? [] : [sha256(config.apiKey)]),
        ...(await store.organisations.apiKeyHashes()),
      ],
      log,
    }),
    config: {
      ...(config.publicUrl === undefined ? {} : { publicUrl: config.publicUrl }),
      previewUrl: config.previewUrl.origin,
      region: config.region,
      workerId: hostname(),
      trustProxy: config.trustProxy,
      limits: { requestsPerSecond, requestBurst: requestsPerSecond * 2, ...config.limits.http },
    },
    log,
    async ready() {
      if (!hasKeys) throw new ServiceError('unavailable', 'the server is starting')
      await store.ping()
    },
    sandboxCounts: () => store.sandboxes.sandboxCounts(),
  })
  started.defer(() => http.close(graceMs))
  const removeOld = () => {
    purge(store, config).catch((error: unknown) => log.warn({ err: error }, 'what is old could not be removed'))
  }
  removeOld()
  const purging = setInterval(removeOld, purgeEveryMs).unref()
  started.defer(() => clearInterval(purging))

  // Before anybody is served: the key that this one ends would otherwise be let in, and believed for a while (http/auth.ts).
  if (config.apiKey !== undefined) await configureApiKey(store.organisations, config.apiKey)
  await listen('the API', http, config.listen)
  // After all that can fail, since the key is shown this once.
  const freshKey = config.apiKey === undefined ? await makeFirstApiKey(store.organisations, events.showKey) : undefined
  hasKeys = true
  const running = started.move()
  return { freshKey, close: () => running.disposeAsync() }
}

/** Throws `unavailable` with all that the machine lacks, before anything is made on it. */
async function assertFitMachine({ imageDir, dataDir }: Config): Promise<void> {
  if (!(await exists(hostToolIn(imageDir)))) {
    throw new ServiceError('unavailable', `nothing is installed in ${imageDir}: run npm run setup`)
  }
  const unmet = await unmetRequirements({ imageDir, dataDir })
  if (unmet.length === 0) return
  const list = unmet.map((sentence) => `  ${sentence}`).join('\n')
  throw new ServiceError('unavailable', `this machine cannot run sandboxes:\n${list}\nnpm run doctor tells more`)
}

async function purge(store: Store, { sessionsKeptMs }: Config): Promise<void> {
  await store.idempotency.purge(new Date(Date.now() - idempotencyKeptMs))
  if (sessionsKeptMs !== undefined) await store.sessions.purgeSessions(new Date(Date.now() - sessionsKeptMs))
}

function previewUrl(base: URL, host: string): string {
  return `${base.protocol}//${host}${base.port === '' ? '' : `:${base.port}`}`
}
