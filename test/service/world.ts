import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { createMemoryBus } from '../../src/events/in-process-bus.ts'
import type { ErrorCode } from '../../src/errors.ts'
import { isServiceError } from '../../src/errors.ts'
import type { ServiceEvent } from '../../src/events/bus.ts'
import { newId } from '../../src/lib/id.ts'
import { silentLog } from '../../src/lib/log.ts'
import { type SandboxLimits, createSandboxService, defaultSandboxLimits } from '../../src/sandbox/index.ts'
import { type Store, cachedSandboxStore, openStore } from '../../src/store/index.ts'
import { FakeTxtRecords } from '../support/fake-txt-records.ts'
import { imageDir } from '../support/images.ts'
import { FakeMachines } from './fake-machines.ts'

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

/** Worlds over one store for all tests of the calling file. Each has an organisation of its own unless one is kept. */
export function worlds() {
  let dataDir: string
  let store: Store
  before(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'atoll-service-'))
    store = await openStore({ dataDir, imageDir })
  })
  after(async () => {
    await store.close()
    await rm(dataDir, { recursive: true })
  })

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

export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await sleep(20)
}
