import { randomBytes } from 'node:crypto'
import type { EventBus } from '../../src/events/index.ts'
import { createInProcessBus } from '../../src/events/in-process-bus.ts'
import { defined } from '../../src/lib/defined.ts'
import { newId } from '../../src/lib/id.ts'
import type { Log } from '../../src/lib/log.ts'
import { sha256 } from '../../src/lib/secret.ts'
import { createSandboxService, defaultSandboxLimits } from '../../src/sandbox/index.ts'
import type { SandboxDefaults, SandboxLimits, SandboxServiceDeps } from '../../src/sandbox/index.ts'
import type { Store } from '../../src/store/index.ts'
import { FakeTxtRecords } from './fake-txt-records.ts'

export const previewHost = 'preview.test'

export interface LogLine {
  level: keyof Log
  facts: object
  message: string
}

interface SandboxServiceOptions extends Pick<
  SandboxServiceDeps,
  'store' | 'driver' | 'guest' | 'assertActive' | 'quotaOf' | 'egress'
> {
  /** Default: one of its own. */
  bus?: EventBus
  limits?: Partial<SandboxLimits>
  previewDomain?: Partial<SandboxServiceDeps['previewDomain']>
  /** What a server finds again after a restart. */
  records?: FakeTxtRecords | undefined
  signingSecret?: string | undefined
  warmSandboxesMax?: number
  cacheMb?: number
  defaults?: SandboxDefaults | undefined
  /** Default: lines of its own. */
  lines?: LogLines
}

interface LogLines {
  log: Log
  logs: LogLine[]
  /** Messages alone, by level. */
  messages: Record<keyof Log, string[]>
}

/** A log and what it was told. */
export function makeLogLines(): LogLines {
  const logs: LogLine[] = []
  const messages: LogLines['messages'] = { debug: [], info: [], warn: [], error: [] }
  const write = (level: keyof Log) => (facts: object, message: string) => {
    logs.push({ level, facts, message })
    messages[level].push(message)
  }
  const log: Log = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') }
  return { log, logs, messages }
}

/** The real sandbox service on a bus, a log and a DNS of its own. */
export function makeSandboxService(options: SandboxServiceOptions) {
  const { store, driver, guest, limits, previewDomain, warmSandboxesMax = 0 } = options
  const { bus = createInProcessBus() } = options
  const { log, logs, messages } = options.lines ?? makeLogLines()
  const records = options.records ?? new FakeTxtRecords()
  const service = createSandboxService({
    store,
    driver,
    guest,
    bus,
    log,
    // An answer waits as long as a lookup takes on a busy machine.
    limits: { ...defaultSandboxLimits, domainAnswerWaitMs: 60_000, ...limits },
    warmSandboxesMax,
    defaults: options.defaults ?? {},
    cacheMb: options.cacheMb ?? 10_240,
    previewDomain: {
      host: previewHost,
      tls: false,
      ownHosts: [previewHost, 'api.test'],
      isCustomAllowed: true,
      ...previewDomain,
    },
    txtResolver: records,
    ...defined({ assertActive: options.assertActive, quotaOf: options.quotaOf, egress: options.egress }),
    signingSecret: options.signingSecret ?? randomBytes(32).toString('hex'),
  })
  return { service, bus, log, logs, messages, records }
}

export async function makeOrganisation(store: Store): Promise<{ id: string; key: string }> {
  const id = newId('org_')
  const key = `test-${randomBytes(16).toString('hex')}`
  await store.organisations.insertOrganisation({ id, name: id })
  await store.organisations.insertApiKey({ id: newId('key_'), orgId: id, keyHash: sha256(key), createdAt: new Date() })
  return { id, key }
}
