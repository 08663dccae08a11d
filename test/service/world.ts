import { after, before } from 'node:test'
import { type ErrorCode, isServiceError } from '../../src/errors.ts'
import type { ServiceEvent } from '../../src/events/index.ts'
import { type ProcessInfo, type SandboxDefaults, type SandboxLimits, sandboxStatuses } from '../../src/sandbox/index.ts'
import { type Store, cachedSandboxStore } from '../../src/store/index.ts'
import { openFreshStore } from '../support/database.ts'
import { FakeMachines, type Step } from '../support/fake-machines.ts'
import type { FakeTxtRecords } from '../support/fake-txt-records.ts'
import { makeOrganisation, makeSandboxService } from '../support/sandbox-service.ts'

/** What a server finds again after a restart, beside its store. */
interface Kept {
  records?: FakeTxtRecords
  signingSecret?: string
  machines?: FakeMachines
  orgId?: string
  defaults?: SandboxDefaults
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
    defaults: kept.defaults,
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

/** Removes the records of all sandboxes and checkpoints. A start reads those of all organisations. */
export async function forgetSandboxes({ sandboxes }: Store): Promise<void> {
  const stopped = { status: 'stopped', stoppedAt: new Date(0) } as const
  for (const { id } of await sandboxes.sandboxesIn(sandboxStatuses)) await sandboxes.updateSandbox(id, stopped)
  for (const id of await sandboxes.stoppedSandboxIds()) await sandboxes.detachVolumes(id)
  await sandboxes.purgeSandboxes(await sandboxes.stoppedSandboxIds())
  for (const id of await sandboxes.checkpointIds()) await sandboxes.deleteCheckpoint(id)
  await sandboxes.forgetCheckpoints(await sandboxes.deletedCheckpointIds())
}

export function throwsCode(code: ErrorCode, pattern = /./): (error: unknown) => boolean {
  return (error) => isServiceError(error, code) && pattern.test(error.message)
}

/** Worlds over one store for all tests of the calling file. Each has an organisation of its own unless one is kept. */
export function worlds() {
  let store: Store
  before(async () => {
    store = await openFreshStore()
  })
  after(() => store.close())

  const makeWorldHere = (limits: Partial<SandboxLimits> = {}, kept: Kept = {}) => makeWorld(store, limits, kept)
  return {
    makeWorld: makeWorldHere,
    sharedStore: () => store,

    /** A world with one sandbox. */
    async makeSandbox(limits: Partial<SandboxLimits> = {}) {
      const world = await makeWorldHere(limits)
      const { sandbox } = await world.service.create(world.orgId, {})
      const { checkpoints } = world.service
      return {
        ...world,
        sandbox,
        /** Makes a disk-only checkpoint and waits for its end. */
        async checkpoint(name: string, more: object = {}) {
          const input = { name, kind: 'disk_only', ...more } as const
          const { id } = await checkpoints.create(world.orgId, sandbox.id, input)
          return await checkpoints.settled(world.orgId, id)
        },
        /** Names and states of the sandbox's checkpoints. */
        async names() {
          return (await checkpoints.list(world.orgId, sandbox.id)).map(({ name, status }) => `${name} ${status}`)
        },
      }
    },
  }
}

/** A process as a guest lists it, running unless `more` says otherwise. */
export function guestProcess(id: string, more: Partial<ProcessInfo> = {}): ProcessInfo {
  return { id, pid: 9, argv: ['sleep'], running: true, startedAt: '', attachedClients: 0, pty: false, ...more }
}

/** Makes the next calls of a step wait for `release`; `begun` resolves at the first one. */
export function hold(machines: FakeMachines, step: Step) {
  const begun = Promise.withResolvers<void>()
  const held = Promise.withResolvers<void>()
  machines.before[step] = async () => {
    begun.resolve()
    await held.promise
  }
  return { begun: begun.promise, release: held.resolve }
}
