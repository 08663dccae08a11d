import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { Audit } from '../../src/organisation/audit/index.ts'
import { noPrices, UsageReports } from '../../src/organisation/usage/index.ts'
import { noTargets, readTargets, Webhooks } from '../../src/webhook/index.ts'
import { KeyFile, keyFileName, KeyRing, type SecretLimits, Secrets } from '../../src/secret/index.ts'
import { logEventTypes } from '../../src/protocol/log-events.ts'
import {
  Keys,
  Operator,
  type OrganisationLimits,
  OrganisationReconciler,
  Organisations,
} from '../../src/organisation/index.ts'
import { organisationParts } from '../../src/server/organisation-parts.ts'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, type TestContext } from 'node:test'
import { LogStreams } from '../../src/events/index.ts'
import { createInProcessBus } from '../../src/events/in-process-bus.ts'
import { createMcp } from '../../src/server/mcp.ts'
import { BrowserSessions } from '../../src/http/server/browser-sessions.ts'
import { type HttpDeps, type HttpLimits, createHttpServer } from '../../src/http/server/server.ts'
import { routes } from '../../src/http/routes/index.ts'
import { defined } from '../../src/lib/defined.ts'
import { sha256 } from '../../src/lib/secret.ts'
import { createPreviewProxy } from '../../src/preview/preview-proxy.ts'
import { createGuest } from '../../src/runtime/guest-client/index.ts'
import {
  defaultImageLimits,
  type Definitions,
  type ImageLimits,
  Images,
  RegistryCredentials,
} from '../../src/image/index.ts'
import { Sealer } from '../../src/lib/sealed.ts'
import { assertDiskTakesData, defaultSandboxLimits } from '../../src/sandbox/index.ts'
import type { RunningSandboxService, SandboxLimits } from '../../src/sandbox/index.ts'
import type { Store } from '../../src/store/index.ts'
import { openFreshStore } from './database.ts'
import { ApiClient } from './api-client.ts'
import { FakeSessions } from './fake-sessions.ts'
import type { FakeTxtRecords } from './fake-txt-records.ts'
import { GuestMachines } from './guest-machines.ts'
import { makeLogLines, type LogLine, makeOrganisation, makeSandboxService, previewHost } from './sandbox-service.ts'

/** Of the operator of each world. */
export const operatorKey = 'atoll_op_of-the-tests-000000'

/** Of each world. */
export const signingSecret = 'the signing secret of this world'

export { previewHost } from './sandbox-service.ts'

export interface WorldOptions {
  limits?: Partial<HttpLimits>
  sandboxLimits?: Partial<SandboxLimits>
  imageLimits?: Partial<ImageLimits>
  /** Of organisations for which the operator has set none. */
  organisationLimits?: Partial<OrganisationLimits>
  secretLimits?: Partial<SecretLimits>
  /** Hosts that the operator allows. */
  registries?: readonly string[]
  definitions?: Definitions
  publicUrl?: string
  /** Default: with a `publicUrl`. */
  hasCustomDomains?: boolean
  trustProxy?: boolean | string[]
  ready?: () => Promise<void>
  host?: HttpDeps['host']
  quarantine?: HttpDeps['quarantine']
  /** The key that the operator has chosen. */
  apiKey?: string
  /** Files of the built dashboard by their path in its folder. Default: it is not built. */
  dashboard?: Record<string, string>
  /** The same of the built documentation. */
  docs?: Record<string, string>
  /** Serves as behind a proxy with TLS at this port. */
  edge?: { port: number; probeAfterMs?: number }
}

/** The real HTTP server, preview proxy, sandbox service, database and guest; sessions in memory, and no containers. */
export interface World extends AsyncDisposable {
  api: ApiClient
  /** Of another organisation. */
  stranger: ApiClient
  operator: ApiClient
  organisations: Organisations
  reconciler: OrganisationReconciler
  origin: string
  port: number
  orgId: string
  strangerOrgId: string
  store: Store & { databaseUrl: string }
  machines: GuestMachines
  sandboxes: RunningSandboxService
  sessions: FakeSessions
  secrets: Secrets
  /** Where the package of the SDK would be. */
  sdkPackage: string
  /** The DNS in which proofs of domains are looked up. */
  records: FakeTxtRecords
  logs: LogLine[]
  /** Removed at the end. */
  dataDir: string
  /** Sets the record that shows a domain to be an organisation's, by default that of `api`. */
  prove(domain: string, orgId?: string): void
  /** Starts a sandbox and returns its id. */
  sandbox(body?: object): Promise<string>
  close(graceMs?: number): Promise<void>
}

export async function makeWorld(options: WorldOptions = {}): Promise<World> {
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-api-'))
  const bus = createInProcessBus()
  const store = await openFreshStore(undefined, { logGrew: (orgId) => bus.publish({ type: 'log_grew', orgId }) })
  const owner = await makeOrganisation(store)
  const httpLimits = { requestsPerSecond: 10_000, requestBurst: 10_000, ...options.limits }
  const organisations = new Organisations({
    store: store.organisations,
    defaults: {
      ...defined({
        runningSandboxesMax: options.sandboxLimits?.runningSandboxesMax,
        diskMbMax: options.sandboxLimits?.diskMbPerOrganisationMax,
        eventStreamsMax: options.limits?.eventStreamsPerOrganisationMax,
        socketsMax: options.limits?.socketsPerOrganisationMax,
      }),
      requestsPerSecondPerKey: httpLimits.requestsPerSecond,
      requestsPerSecond: 10_000,
      ...options.organisationLimits,
    },
  })
  await organisations.start()
  const machines = new GuestMachines()
  const sessions = new FakeSessions()
  const lines = makeLogLines()
  const { log, logs } = lines
  const secrets = new Secrets({
    store: store.secrets,
    ring: new KeyRing({
      configured: [],
      file: new KeyFile(join(dataDir, keyFileName)),
      keysInUse: () => store.secrets.keysInUse(),
    }),
    log,
    ...defined({ limits: options.secretLimits }),
  })
  const { service: sandboxes, records } = makeSandboxService({
    lines,
    bus,
    store: store.sandboxes,
    driver: machines,
    assertActive: (orgId) => organisations.assertActive(orgId),
    quotaOf: (orgId) => organisations.limitsOf(orgId),
    guest: (sandboxId) =>
      createGuest(() => machines.dial(sandboxId), { connect: (port) => machines.connect(sandboxId, port) }),
    limits: { domainCheckMs: 20, ...options.sandboxLimits },
    egress: { egressStore: store.egress, secrets },
    previewDomain: {
      tls: options.edge !== undefined,
      isCustomAllowed: options.hasCustomDomains ?? options.publicUrl !== undefined,
    },
  })
  await sandboxes.start()
  const images = new Images({
    store: store.images,
    sandboxes,
    registryCredentials: new RegistryCredentials({
      store: store.registryCredentials,
      sealer: new Sealer('the sealing secret of this world'),
      hosts: options.registries ?? ['ghcr.io'],
    }),
    dir: join(dataDir, 'builds'),
    exportDir: join(dataDir, 'exports'),
    logDir: join(dataDir, 'build-logs'),
    contextDir: join(dataDir, 'contexts'),
    assertDiskTakesData: () => assertDiskTakesData(machines),
    limits: { ...defaultImageLimits, ...options.imageLimits },
    definitions: options.definitions ?? new Map(),
    signingSecret,
    sandboxLimits: { ...defaultSandboxLimits, ...options.sandboxLimits },
    operatorOrgId: async () => owner.id,
    log,
  })
  await images.start()
  const { publicUrl, trustProxy = false } = options
  const dashboardDir = join(dataDir, 'dashboard')
  await writeFiles(dashboardDir, options.dashboard)
  const docsDir = join(dataDir, 'docs')
  await writeFiles(docsDir, options.docs)
  const operator = new Operator(store.organisations)
  const webhooks = new Webhooks({
    ...{ store: store.webhooks, bus, log, eventTypes: logEventTypes },
    sealer: new Sealer('the secret of the webhooks of this world'),
    targets: readTargets('127.0.0.1') ?? noTargets,
    destinationsMaxOf: (orgId) => organisations.limitsOf(orgId).webhooksMax,
    assertSandbox: async (orgId, sandboxId) => void (await sandboxes.get(orgId, sandboxId)),
    // Nothing is sent here.
    onDestination: () => undefined,
  })
  await webhooks.start()
  const reconciler = new OrganisationReconciler({
    organisations,
    parts: organisationParts({ sessions, images, sandboxes, webhooks }),
    log,
  })
  reconciler.start()
  await operator.putKey(operatorKey)
  const server = await createHttpServer(
    {
      sandboxes,
      images,
      sessions,
      browserSessions: new BrowserSessions({ signingSecret, ...(publicUrl === undefined ? {} : { publicUrl }) }),
      organisations,
      webhooks,
      secrets,
      audit: new Audit(store.audit, log),
      auditStore: store.audit,
      usage: new UsageReports(store.usage),
      prices: noPrices,
      keys: new Keys({ store: store.organisations, organisations, log }),
      operator,
      idempotency: store.idempotency,
      events: new LogStreams({ log: store.events, bus }),
      preview: createPreviewProxy({
        previews: sandboxes.previews,
        bus,
        previewHost,
        trustProxy,
        signingSecret,
        log,
        ...(publicUrl === undefined ? {} : { apiHosts: [new URL(publicUrl).hostname] }),
        ...(options.edge === undefined ? {} : { edge: options.edge }),
        ...(options.apiKey === undefined ? {} : { apiKeyHashes: [sha256(options.apiKey)] }),
      }),
      mcp: createMcp({ url: () => origin, previewUrl: `http://${previewHost}`, version: 'test', log }),
      config: {
        ...(publicUrl === undefined ? {} : { publicUrl }),
        previewUrl: `http://${previewHost}`,
        region: 'local',
        workerId: 'worker-1',
        sdkPackage: join(dataDir, 'atoll-sdk-1.2.3.tgz'),
        dashboardDir,
        docsDir,
        trustProxy,
        limits: httpLimits,
      },
      log,
      ready: options.ready ?? (() => store.ping()),
      sandboxCounts: () => store.sandboxes.sandboxCounts(),
      disk: () => undefined,
      warmCounts: () => ({}),
      host: options.host ?? (() => Promise.reject(new Error('this test has no host'))),
      quarantine: options.quarantine ?? (async () => ({ count: 0, items: [] })),
    },
    routes,
  )
  const { port } = await server.listen({ host: '127.0.0.1', port: 0 })
  const origin = `http://127.0.0.1:${port}`
  const other = await makeOrganisation(store)
  const api = new ApiClient(origin, owner.key)
  let isClosed = false
  const close = async (graceMs = 1000): Promise<void> => {
    if (isClosed) return
    isClosed = true
    await server.close(graceMs)
    await webhooks.close()
    await reconciler.close()
    await images.close()
    await sandboxes.close()
    await bus.close()
    await store.close()
    await rm(dataDir, { recursive: true, force: true })
  }
  return {
    api,
    stranger: new ApiClient(origin, other.key),
    operator: new ApiClient(origin, operatorKey),
    organisations,
    reconciler,
    origin,
    port,
    orgId: owner.id,
    strangerOrgId: other.id,
    store,
    machines,
    sandboxes,
    sessions,
    secrets,
    sdkPackage: join(dataDir, 'atoll-sdk-1.2.3.tgz'),
    records,
    logs,
    dataDir,
    prove(domain, orgId = owner.id) {
      const record = sandboxes.previews.verification({ orgId, customHostname: domain })
      if (record !== undefined) records.add(record)
    },
    async sandbox(body = {}) {
      const { status, body: started, text } = await api.post('/api/sandboxes', body)
      if (status !== 201) throw new Error(`no sandbox: ${status} ${text}`)
      return started.sandboxID as string
    },
    close,
    [Symbol.asyncDispose]: close,
  }
}

/**
 * A world for all tests of a file: made before the first test, closed after the last. `setUp` runs once it is made; hooks at the
 * top level of a file run concurrently, so a second `before` would not wait.
 */
export function useWorld(options?: WorldOptions, setUp?: () => Promise<void>): World {
  const world = {} as World
  before(async () => {
    Object.assign(world, await makeWorld(options))
    await setUp?.()
  })
  after(() => world.close())
  return world
}

/** Puts methods that a test replaces back when it ends. */
export function restoring<Target extends object>(t: TestContext, target: Target, ...names: (keyof Target)[]): void {
  const originals = names.map((name) => [name, target[name]])
  t.after(() => void Object.assign(target, Object.fromEntries(originals)))
}

async function writeFiles(folder: string, files: Readonly<Record<string, string>> = {}): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, name), text)
  }
}
