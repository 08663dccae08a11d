import { mkdir } from 'node:fs/promises'
import { hostname } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { Logger } from 'pino'
import { actingAsServer, LogStreams } from '../events/index.ts'
import { createInProcessBus } from '../events/in-process-bus.ts'
import { ServiceError } from '../errors.ts'
import {
  anthropicBaseUrlDefault,
  Gateway,
  openaiBaseUrlDefault,
  sessionMeter,
  startDemoModel,
} from '../gateway/index.ts'
import { MetadataServer } from '../metadata/index.ts'
import { BrowserSessions } from '../http/server/browser-sessions.ts'
import { createHttpServer } from '../http/server/server.ts'
import { routes } from '../http/routes/index.ts'
import { defined } from '../lib/defined.ts'
import { Sealer } from '../lib/sealed.ts'
import { createGuest } from '../runtime/guest-client/index.ts'
import { exists } from '../runtime/exists.ts'
import { harmlessChecks, inspectHost, unmetRequirements } from '../runtime/doctor/index.ts'
import { hostToolIn } from '../runtime/host-names.ts'
import { createMcp, ownUrl } from './mcp.ts'
import { createOciDriver, ociRuntimes, poolSpace } from '../runtime/index.ts'
import { defaultImageLimits, Images, RegistryCredentials } from '../image/index.ts'
import {
  assertDiskTakesData,
  createSandboxService,
  defaultSandboxLimits,
  type EgressEntry,
  type EgressLog,
  type StatedEgress,
} from '../sandbox/index.ts'
import { Keys, Operator, OrganisationReconciler, Organisations } from '../organisation/index.ts'
import { Audit } from '../organisation/audit/index.ts'
import { Budgets, Meter, UsageReports } from '../organisation/usage/index.ts'
import { readingOf } from './usage-reading.ts'
import { capsulePath, Sessions } from '../session/index.ts'
import { cachedSandboxStore } from '../store/index.ts'
import { serveBackups } from './backup/service.ts'
import { databaseCheck } from './database-check.ts'
import { configureApiKey, makeFirstApiKey, makeOperatorKey, secretOf } from './credentials.ts'
import type { Config } from './config.ts'
import { ownVersion } from '../lib/version.ts'
import { createHostReporter } from './host.ts'
import { organisationDefaults } from './organisation-defaults.ts'
import { organisationParts } from './organisation-parts.ts'
import { readDefinitions } from './image-definitions.ts'
import { lockDataDir, openOwnStore } from './installation.ts'
import { missingHarness } from './harnesses.ts'
import { retentionRules, startRetention } from './retention.ts'
import { createTxtResolver } from './txt-resolver.ts'
import { createPreviews, previewUrl } from './previews.ts'
import { createQuarantineReporter } from './quarantine-report.ts'
import { createSecrets } from './secrets.ts'
import { startWebhooks } from './webhooks.ts'

export interface App {
  /** The first API key, when this start has created it. */
  freshKey: string | undefined
  /** Ends requests and closes everything; sandboxes run on. A repeat is harmless. */
  close(): Promise<void>
}

/** Filled in once sandboxes can be read. */
interface HeldEgress {
  of(sandboxId: string): Promise<StatedEgress>
  log: Pick<EgressLog, 'add' | 'addDropped'> | undefined
}

export interface AppEvents {
  /** Another server has taken the database and changed the records of our sandboxes: the state of this process is stale. */
  databaseGone: (why: string) => void
  /** Prints a key that a first start creates. When it throws, no key is stored. */
  showKey: (key: string, of: 'operator' | 'organisation') => void
}

const httpGraceMs = 10_000

/**
 * Wires an implementation to every port and starts the parts in the order of their dependencies. They are closed in the opposite
 * order, also when a later part fails to start.
 */
export async function startApp(config: Config, log: Logger, events: AppEvents): Promise<App> {
  const imageLimits = { ...defaultImageLimits, ...config.limits.image }
  const definitions = await readDefinitions(config.definitionsDir, imageLimits)
  await assertFitMachine(config)
  await using started = new AsyncDisposableStack()
  await mkdir(config.dataDir, { recursive: true, mode: 0o711 })
  started.use(await lockDataDir(config.dataDir))

  const bus = createInProcessBus({
    onListenerError: (error) => log.error({ err: error }, 'a listener of the bus failed'),
  })
  started.defer(() => bus.close())
  // The store is open before organisations can be read.
  const weights = { of: (_orgId: string) => 1 }
  const store = started.use(
    await openOwnStore(config, {
      logGrew: (orgId) => bus.publish({ type: 'log_grew', orgId }),
      lockChanged(lock) {
        if (lock === 'held') log.info('the lock of the database is held again')
        if (lock === 'lost')
          log.warn('the connection that holds the lock of the database is lost; requests fail until it is back')
        if (lock === 'gone') events.databaseGone('another server has taken the database')
      },
      log,
      shareOf: (orgId) => weights.of(orgId),
    }),
  )
  const organisations = new Organisations({
    store: store.organisations,
    defaults: organisationDefaults(config),
  })
  await organisations.start()
  weights.of = (orgId) => organisations.limitsOf(orgId).weight
  const keys = new Keys({ store: store.organisations, organisations, log })
  const operator = new Operator(store.organisations)
  await operator.start()
  const secret = config.signingSecret ?? (await secretOf(config.dataDir, 'signing-secret'))

  const sandboxLimits = {
    ...defaultSandboxLimits,
    ...config.limits.sandbox,
    runningSandboxesMax: config.runningSandboxesMax,
  }
  // The driver asks once sandboxes start, which it runs for.
  const heldEgress: HeldEgress = { of: async () => ({ state: 'open' }), log: undefined }
  const { dataDir, imageDir, subnet, registries, leaveHostFirewall, lazyMemoryBytesMin } = config
  const { quarantineKeptMs, mayQuarantineMany } = config
  const driver = createOciDriver({
    runtime: ociRuntimes[config.runtime],
    ...{ dataDir, imageDir, subnet, registries, leaveHostFirewall, lazyMemoryBytesMin },
    diskRates: {
      readBytes: sandboxLimits.diskReadBytesPerSecondMax,
      writeBytes: sandboxLimits.diskWriteBytesPerSecondMax,
      reads: sandboxLimits.diskReadsPerSecondMax,
      writes: sandboxLimits.diskWritesPerSecondMax,
    },
    ...{ quarantineKeptMs, mayQuarantineMany },
    egress: {
      ...config.egress,
      egressOf: (sandboxId) => heldEgress.of(sandboxId),
      onEgressEntry: (entry) => heldEgress.log?.add(entry),
      onEgressEntriesDropped: (dropped) => heldEgress.log?.addDropped(dropped),
    },
    log: (message) => log.info(message),
    ...defined({ diskPoolBytes: config.diskPoolBytes || undefined }),
  })
  const secrets = createSecrets({ config, store, log })
  const audit = new Audit(store.audit, log)
  started.defer(() => audit.close())
  const meter = new Meter(store.usage, log)
  let budgets: Budgets | undefined
  const sandboxes = createSandboxService({
    meter: {
      note: (sandbox, usage) => meter.note(readingOf(sandbox, usage)),
      noteLast: (sandbox, usage) => meter.noteLast(readingOf(sandbox, usage)),
      closeLost: (sandboxId) => store.usage.closeLost(sandboxId),
    },
    store: cachedSandboxStore(store.sandboxes),
    driver,
    guest: (sandboxId, orgId) =>
      createGuest((signal) => driver.dial(sandboxId, signal, orgId), {
        ...defined({ owner: orgId }),
        connect: async (port, signal) => driver.connect?.(sandboxId, port, signal, orgId),
      }),
    bus,
    log,
    egress: { egressStore: store.egress, secrets },
    limits: sandboxLimits,
    warmSandboxesMax: config.warmSandboxesMax,
    previewDomain: {
      host: config.previewUrl.hostname,
      tls: config.previewUrl.protocol === 'https:',
      ...defined({ urlPort: Number(config.previewUrl.port) || undefined }),
      ownHosts: [config.previewUrl.hostname, ...config.apiHosts],
      isCustomAllowed: config.publicUrl !== undefined,
    },
    txtResolver: createTxtResolver({ servers: config.dnsServers }),
    signingSecret: secret,
    defaults: config.sandboxDefaults,
    cacheMb: imageLimits.cacheMb,
    assertActive: (orgId) => {
      organisations.assertActive(orgId)
      budgets?.assertWithin(orgId)
    },
    shareOf: (orgId) => organisations.limitsOf(orgId),
    quotaOf: (orgId) => organisations.limitsOf(orgId),
    ...defined({ defaultUser: config.defaultUser }),
  })
  const { egress, egressLog } = sandboxes
  if (egress !== undefined) {
    heldEgress.of = (sandboxId) => egress.egressOf(sandboxId)
    heldEgress.log = egressLog
    secrets.onChange((orgId, { storeName: name, isDefault }) => egress.refresh(orgId, { name, isDefault }))
  }
  await sandboxes.start()
  started.defer(() => sandboxes.close())
  started.use(
    await serveBackups({
      dataDir: config.dataDir,
      store,
      backups: driver.backups,
      holdKeys: () => secrets.holdKeys(),
      log,
    }),
  )

  const registryCredentials = new RegistryCredentials({
    store: store.registryCredentials,
    sealer: new Sealer(await secretOf(config.dataDir, 'sealing-secret')),
    hosts: registries.map(({ host }) => host),
  })
  meter.open()
  started.defer(() => meter.close())
  const webhooks = await startWebhooks(started, { config, store, bus, organisations, sandboxes, log })

  const images = new Images({
    buildsAtOnceOf: (orgId) => organisations.limitsOf(orgId).buildsAtOnce,
    store: store.images,
    sandboxes,
    registryCredentials,
    dir: `${config.dataDir}/builds`,
    exportDir: `${config.dataDir}/exports`,
    logDir: `${config.dataDir}/build-logs`,
    contextDir: `${config.dataDir}/contexts`,
    assertDiskTakesData: () => assertDiskTakesData(driver),
    limits: imageLimits,
    definitions,
    signingSecret: secret,
    sandboxLimits,
    operatorOrgId: async () => (await store.organisations.defaultOrganisation()).id,
    log,
  })
  await actingAsServer('recovery', () => images.start())
  started.defer(() => images.close())

  const { listenHost, listenPort, insideHost } = driver.gateway()
  const sessions = new Sessions({
    sessionsMaxOf: (orgId) => organisations.limitsOf(orgId).sessionsMax,
    store: store.sessions,
    capsules: store.capsules,
    sandboxes,
    bus,
    signingSecret: secret,
    isActive: (orgId) => organisations.isActive(orgId),
    log,
    config: {
      defaultModel: config.model,
      models: config.models,
      prices: config.prices,
      harnesses: ['pi', 'claude', 'acp:'],
      missingHarness: (harness) => missingHarness(config.imageDir, harness),
      gatewayUrl: `http://${insideHost}:${listenPort}`,
      previewUrl: (host) => previewUrl(config.previewUrl, host),
      checkpoints: config.sessionCheckpoints,
      capsuleUrl: (token) => `${config.ownUrl.replace(/\/+$/, '')}${capsulePath(token)}`,
      limits: config.limits.session,
    },
  })

  const demo = await startDemoModel()
  started.defer(() => demo.close())
  const { anthropic, openai } = config
  const gateway = new Gateway({
    meter: sessionMeter(store.sessions, config.prices),
    upstreams: {
      demo: { baseUrl: demo.baseUrl },
      ...defined({
        anthropic: anthropic && { baseUrl: anthropicBaseUrlDefault, ...anthropic },
        openai: openai && { baseUrl: openaiBaseUrlDefault, ...openai },
      }),
    },
    sandboxAt: (peerAddress) => driver.sandboxAt(peerAddress),
    isActive: (orgId) => organisations.isActive(orgId),
    ...(egress && {
      egress: {
        host: insideHost,
        refusedBy: (sandboxId: string) => egress.gatewayRefusal(sandboxId, insideHost),
        onEntry: (entry: EgressEntry) => egressLog?.add(entry),
      },
    }),
    warnSession: (sessionId, code, message) => sessions.warn(sessionId, code, message),
    allowList: config.gatewayAllowList,
    limits: { retryMs: config.modelRetryMs },
    log,
  })
  await listen('the model gateway', gateway, { host: listenHost, port: listenPort })
  started.defer(() => gateway.close())

  const metadata = new MetadataServer({
    sandboxes,
    sandboxAt: (peerAddress) => driver.sandboxAt(peerAddress),
    region: config.region,
    log,
  })
  const metadataAddress = driver.metadata()
  await listen('the metadata service', metadata, {
    host: metadataAddress.listenHost,
    port: metadataAddress.listenPort,
  })
  started.defer(() => metadata.close())

  budgets = new Budgets({
    ...{ store: store.usage, organisations, prices: config.usagePrices, log },
    async pause(orgId) {
      await sessions.rest(orgId)
      await sandboxes.hibernateAll(orgId)
    },
    resume: (orgId) => sessions.takeUp(orgId),
  })

  await sessions.start()
  started.defer(() => sessions.close())
  budgets.open()
  started.defer(() => budgets?.close())

  const reconciler = new OrganisationReconciler({
    organisations,
    parts: organisationParts({ sessions, images, sandboxes, webhooks }),
    log,
  })
  reconciler.start()
  started.defer(() => reconciler.close())

  let hasKeys = false
  const { requestsPerSecond = Number.MAX_SAFE_INTEGER } = config
  const http = await createHttpServer(
    {
      sandboxes,
      images,
      sessions,
      browserSessions: new BrowserSessions({ signingSecret: secret, ...defined({ publicUrl: config.publicUrl }) }),
      organisations,
      keys,
      operator,
      webhooks,
      secrets,
      audit,
      auditStore: store.audit,
      usage: new UsageReports(store.usage),
      prices: config.usagePrices,
      idempotency: store.idempotency,
      events: new LogStreams({ log: store.events, bus }),
      preview: await createPreviews(config, { store, sandboxes, audit, bus, signingSecret: secret, log }),
      mcp: createMcp({
        url: () => ownUrl(config.listen),
        previewUrl: config.previewUrl.origin,
        version: ownVersion(),
        log,
      }),
      config: {
        ...defined({ publicUrl: config.publicUrl }),
        previewUrl: config.previewUrl.origin,
        region: config.region,
        workerId: hostname(),
        sdkPackage: fileURLToPath(new URL(`../../sdk/packed/atoll-sdk-${ownVersion()}.tgz`, import.meta.url)),
        dashboardDir: fileURLToPath(new URL('../../dashboard/dist', import.meta.url)),
        docsDir: fileURLToPath(new URL('../../dashboard/dist-docs', import.meta.url)),
        trustProxy: config.trustProxy,
        limits: { requestsPerSecond, requestBurst: requestsPerSecond * 2, ...config.limits.http },
      },
      log,
      async ready() {
        if (!hasKeys) throw new ServiceError('unavailable', 'the server is starting')
        await store.ping()
        assertDiskTakesData(driver)
      },
      disk: () => driver.disk?.(),
      sandboxCounts: () => store.sandboxes.sandboxCounts(),
      warmCounts: () => sandboxes.warmCounts(),
      quarantine: createQuarantineReporter(config),
      host: createHostReporter({
        runtime: driver.name,
        capabilities: () => driver.capabilities,
        inspect: inspectHost({ imageDir: config.imageDir, dataDir: config.dataDir }, [
          ...harmlessChecks,
          databaseCheck(config.databaseUrl),
        ]),
        disk: () => driver.disk?.(),
        diskSpace: () => poolSpace(config.dataDir),
        runningSandboxes: async () => (await store.sandboxes.sandboxCounts()).running,
        warmSandboxes: () => Object.values(sandboxes.warmCounts()).reduce((sum, count) => sum + count, 0),
      }),
    },
    routes,
  )
  started.defer(() => http.close(httpGraceMs))
  started.use(startRetention(retentionRules({ sandboxes, images, sessions, webhooks, secrets, store, config }), log))

  // Before the API listens: a key that this one replaces would otherwise be accepted, and cached for a while (http/server/auth.ts).
  const { apiKey, operatorKey } = config
  if (operatorKey !== undefined) await operator.putKey(operatorKey)
  if (apiKey !== undefined) await actingAsServer('start', () => configureApiKey(store.organisations, apiKey))
  await listen('the API', http, config.listen)
  // After everything that can fail, because the key is printed only once.
  if (config.operatorKey === undefined) await makeOperatorKey(operator, (key) => events.showKey(key, 'operator'))
  const makeKey = () => makeFirstApiKey(store.organisations, (key) => events.showKey(key, 'organisation'))
  const freshKey = apiKey === undefined ? await actingAsServer('start', makeKey) : undefined
  hasKeys = true
  const running = started.move()
  return { freshKey, close: () => running.disposeAsync() }
}

/** Throws `unavailable` with everything that the machine lacks, before anything is created on it. */
async function assertFitMachine({ imageDir, dataDir }: Config): Promise<void> {
  if (!(await exists(hostToolIn(imageDir)))) {
    throw new ServiceError('unavailable', `nothing is installed in ${imageDir}: run npm run setup`)
  }
  const unmet = await unmetRequirements({ imageDir, dataDir })
  if (unmet.length === 0) return
  const list = unmet.map((sentence) => `  ${sentence}`).join('\n')
  throw new ServiceError('unavailable', `this machine cannot run sandboxes:\n${list}\nnpm run doctor tells more`)
}

/** Throws `unavailable` with the address and the reason. */
async function listen(
  name: string,
  server: { listen(address: Config['listen']): Promise<unknown> },
  address: Config['listen'],
): Promise<void> {
  try {
    await server.listen(address)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const why = code === 'EADDRINUSE' ? 'another program listens there' : message
    throw new ServiceError('unavailable', `${name} cannot listen at port ${address.port} of ${address.host}: ${why}`, {
      cause: error,
    })
  }
}
