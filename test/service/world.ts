import { randomBytes } from 'node:crypto'
import { createMemoryBus } from '../../src/events/in-process-bus.ts'
import type { ErrorCode } from '../../src/errors.ts'
import { isServiceError } from '../../src/errors.ts'
import type { ServiceEvent } from '../../src/events/bus.ts'
import { newId } from '../../src/lib/id.ts'
import { silentLog } from '../../src/lib/log.ts'
import { type SandboxLimits, createSandboxService, defaultSandboxLimits } from '../../src/sandbox/index.ts'
import { type Store, cachedSandboxStore } from '../../src/store/index.ts'
import { FakeTxtRecords } from '../support/fake-txt-records.ts'
import { FakeMachines } from '../support/fake-machines.ts'

/** What a server finds again after a restart, beside its store. */
interface Kept {
  records?: FakeTxtRecords
  signingSecret?: string
  machines?: FakeMachines
  orgId?: string
}

/** The real sandbox service over a real store and machines in memory, for an organisation of its own unless one is kept. */
export async function makeWorld(store: Store, limits: Partial<SandboxLimits> = {}, kept: Kept = {}) {
  const machines = kept.machines ?? new FakeMachines()
  const records = kept.records ?? new FakeTxtRecords()
  const bus = createMemoryBus()
  const events: ServiceEvent[] = []
  const errors: string[] = []
  const warnings: string[] = []
  bus.subscribe('*', (event) => events.push(event))
  const service = createSandboxService({
    store: cachedSandboxStore(store.sandboxes),
    driver: machines,
    guest: (sandboxId) => machines.guest(sandboxId),
    bus,
    log: {
      ...silentLog,
      error: (_facts, message) => errors.push(message),
      warn: (_facts, message) => warnings.push(message),
    },
    limits: { ...defaultSandboxLimits, ...limits },
    previewDomain: { host: 'preview.test', tls: false, ownHosts: ['preview.test', 'api.test'], isCustomAllowed: true },
    txtResolver: records,
    signingSecret: kept.signingSecret ?? randomBytes(32).toString('hex'),
  })
  const orgId = kept.orgId ?? newId('org_')
  if (kept.orgId === undefined) await store.organisations.insertOrganisation({ id: orgId, name: 'test' })
  return { service, machines, records, events, errors, warnings, orgId, store }
}

export function throwsCode(code: ErrorCode, pattern = /./): (error: unknown) => boolean {
  return (error) => isServiceError(error, code) && pattern.test(error.message)
}
