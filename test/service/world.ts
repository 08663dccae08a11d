import type { ErrorCode } from '../../src/errors.ts'
import { isServiceError } from '../../src/errors.ts'
import type { ServiceEvent } from '../../src/events/bus.ts'
import type { SandboxLimits } from '../../src/sandbox/index.ts'
import { type Store, cachedSandboxStore } from '../../src/store/index.ts'
import { FakeMachines } from '../support/fake-machines.ts'
import type { FakeTxtRecords } from '../support/fake-txt-records.ts'
import { makeOrganisation, makeSandboxService } from '../support/sandbox-service.ts'

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
  const { service, bus, messages, records } = makeSandboxService({
    store: cachedSandboxStore(store.sandboxes),
    driver: machines,
    guest: (sandboxId) => machines.guest(sandboxId),
    limits,
    records: kept.records,
    signingSecret: kept.signingSecret,
  })
  const events: ServiceEvent[] = []
  bus.subscribe('*', (event) => events.push(event))
  return {
    service,
    machines,
    records,
    events,
    errors: messages.error,
    warnings: messages.warn,
    orgId: kept.orgId ?? (await makeOrganisation(store)).id,
    store,
  }
}

export function throwsCode(code: ErrorCode, pattern = /./): (error: unknown) => boolean {
  return (error) => isServiceError(error, code) && pattern.test(error.message)
}
