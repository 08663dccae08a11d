import { ServiceError } from '../errors.ts'
import { actingAsServer } from '../events/index.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { KeyReach } from '../lib/key-reach.ts'
import { sha256 } from '../lib/secret.ts'
import { type CacheService, Caches } from './cache.ts'
import { type CheckpointService, Checkpoints } from './checkpoint.ts'
import { DomainVerification } from './custom-domain.ts'
import { DiskQuota } from './disk-quota.ts'
import { Egress, type EgressOptions } from './egress/egress.ts'
import { prepareEgress } from './egress/held.ts'
import { type EgressInput, takeEgress } from './egress/input.ts'
import { EgressLog } from './egress/log.ts'
import { Exec } from './exec.ts'
import { FairShares, type OrganisationShare } from './fair-shares.ts'
import { type FileService, Files } from './files.ts'
import { Inspection } from './inspection.ts'
import { assertInput, assertInteger, assertName, assertNewSandbox, assertTags, previewToken } from './input.ts'
import { Lifecycle, type LifecycleContext } from './lifecycle.ts'
import { Mounts, type MountService } from './mounts.ts'
import { OrganisationSandboxes } from './organisation-sandboxes.ts'
import { Patches, type PatchService } from './patch.ts'
import type { Guest } from './ports/guest.ts'
import type { Page, SandboxQuery } from './ports/sandbox-store.ts'
import type { TxtResolver } from './ports/txt-resolver.ts'
import { mayBeWarm } from './ports/warm-start.ts'
import { type PreviewDomain, type PreviewService, Previews } from './preview.ts'
import { quotaOfLimits } from './quota.ts'
import { purgeSandboxes, recover } from './recovery.ts'
import { Autoscaler } from './autoscale.ts'
import { Scaling, type ScalingService } from './scaling.ts'
import { readTree } from './sandbox-tree.ts'
import { type TreeService, Trees } from './trees.ts'
import { Usage } from './usage.ts'
import { assertUserExists } from './user.ts'
import { Volumes, type VolumeMount, type VolumeService } from './volume.ts'
import {
  type CreateSandbox,
  type Sandbox,
  type SandboxChange,
  type SandboxDefaults,
  type SandboxStatus,
  type StartedSandbox,
  assertAlive,
  expiryOf,
  isBuild,
  newSandbox,
  specOf,
  startDefaults,
  withDefaults,
  withUser,
} from './sandbox.ts'

export interface ListSandboxes extends Pick<SandboxQuery, 'name' | 'metadata' | 'tags' | 'tagKeys' | 'reach'> {
  /** Default: all that are not stopped. */
  status?: SandboxStatus
  limit?: number
  cursor?: string
}

/** A name of `undefined` is taken away; `maxAgeSeconds` counts from the creation. */
export type ChangeSandbox = SandboxDefaults & Pick<SandboxChange, 'name'>

export interface WakeSandbox {
  timeoutSeconds?: number
  memory?: boolean
}

export interface SandboxServiceDeps extends Omit<LifecycleContext, 'disk' | 'trust'> {
  /** What holds the egress of sandboxes. Default: nothing does, and creations that ask for it are refused. */
  egress?: Pick<EgressOptions, 'egressStore' | 'secrets'>
  previewDomain: PreviewDomain
  txtResolver: TxtResolver
  signingSecret: string
  /** The user of sandboxes from an installed image that ask for none. Default root. */
  defaultUser?: string
  /** What sandboxes of clients have that ask for nothing else. */
  defaults?: SandboxDefaults
  /** What the caches of builds of one organisation hold together. */
  cacheMb: number
  /** What the running sandboxes of an organisation have together. Default: nothing is divided. */
  shareOf?: (orgId: string) => OrganisationShare
}

export type RunningSandboxService = ReturnType<typeof createSandboxService>
export type SandboxService = Omit<
  RunningSandboxService,
  | 'start'
  | 'close'
  | 'purge'
  | 'emptyQuarantine'
  | 'deleteExpiredCheckpoints'
  | 'removeUnusedCaches'
  | 'hibernateAll'
  | 'removeAll'
>

const listLimitDefault = 1000
/** Time for processes to end by themselves at a reboot. */
const rebootGraceMs = 3000

/**
 * All operations on sandboxes. A resource of another organisation is `not_found`. A call that needs a running sandbox wakes a
 * hibernated one and counts as activity; it throws `sandbox_stopped` after a stop, `conflict` in `error`, and `unavailable` while the
 * host does not answer. HTTP checks shapes (`protocol/http/`); the service checks what depends on configuration or state, and what
 * sessions need too (`input.ts`).
 */
export function createSandboxService(deps: SandboxServiceDeps) {
  const { store, driver, guest, log, limits } = deps
  const patches = new Patches(store, limits, deps.bus)
  const quotaOf = deps.quotaOf ?? (() => quotaOfLimits(limits))
  const disk = new DiskQuota(store, (orgId) => quotaOf(orgId).diskMbMax)
  const egress = deps.egress && new Egress({ ...deps.egress, store, driver, guest, log })
  const egressLog = deps.egress && new EgressLog({ ...deps.egress, store, log })
  const trust = egress && ((inside: Guest, sandbox: Sandbox) => egress.trust(inside, sandbox))
  const lifecycle = new Lifecycle({ ...deps, disk, ...defined({ trust }) }, async (waking) => {
    const found = await patches.listFor(waking)
    return (inside, sandbox, signal) => patches.run('wake', inside, sandbox, found, signal)
  })
  const volumes = new Volumes({ store, driver, disk, limits, log })
  const caches = new Caches({ driver, cacheMb: deps.cacheMb, log })
  const stepMounts = new Mounts({ lifecycle, driver, caches })
  const { defaults = {} } = deps
  const checkpoints = new Checkpoints({
    quotaOf,
    store,
    driver,
    disk,
    lifecycle,
    patches,
    egress,
    volumes,
    limits,
    log,
    defaults,
  })
  const domains = new DomainVerification({
    store,
    resolver: deps.txtResolver,
    secret: deps.signingSecret,
    log,
    intervalMs: limits.domainCheckMs,
    answerWaitMs: limits.domainAnswerWaitMs,
  })
  const previews = new Previews({
    store,
    ...defined({ assertActive: deps.assertActive }),
    lifecycle,
    guest,
    domain: deps.previewDomain,
    domains,
    unverifiedMax: limits.unverifiedDomainsMax,
  })
  const files = new Files({ store, driver, lifecycle, signingSecret: deps.signingSecret })
  const exec = new Exec(lifecycle)
  const inspection = new Inspection(lifecycle)
  const usage = new Usage(lifecycle)
  const ofOrganisation = new OrganisationSandboxes({
    ...{ store, driver, log, lifecycle, checkpoints, volumes, caches },
    mounts: stepMounts,
  })
  const scaling = new Scaling({ lifecycle, driver, limits })
  const autoscaler = new Autoscaler({
    running: () => lifecycle.clocks.listIds(),
    sandbox: (sandboxId) => store.sandbox(sandboxId),
    usage: (sandboxId) => driver.usage(sandboxId),
    change: (sandboxId, memoryMb) => actingAsServer('autoscale', () => scaling.follow(sandboxId, memoryMb)),
    log,
  })
  const { shareOf } = deps
  const fairShares =
    shareOf &&
    new FairShares({
      driver,
      running: () => lifecycle.clocks.listIds(),
      orgOf: async (sandboxId) => (await store.sandbox(sandboxId))?.orgId,
      shareOf,
      log,
    })

  return {
    checkpoints: checkpoints as CheckpointService,
    patches: patches as PatchService,
    volumes: volumes as VolumeService,
    caches: caches as CacheService,
    mounts: stepMounts as MountService,
    previews: previews as PreviewService,
    files: files as FileService,
    exec,
    inspection,
    usage,
    scaling: scaling as ScalingService,
    /** Undefined where nothing holds egress; the log likewise. */
    egress,
    egressLog,
    /** Undefined where the driver reads no disks. */
    get trees(): TreeService | undefined {
      return driver.trees && new Trees({ store, lifecycle, checkpoints, disks: driver.trees })
    },

    /** See `readTree`. */
    tree: (orgId: string, sandboxId: string, reach?: KeyReach) =>
      readTree({ store, driver, log }, { orgId, sandboxId, reach }),

    /** Opens the driver, reconciles records and machines, and starts the clocks. Call once before anything else. */
    async start(): Promise<void> {
      await actingAsServer('recovery', () =>
        recover({ store, driver, lifecycle, log, ...defined({ meter: deps.meter }) }),
      )
      lifecycle.warm.open()
      lifecycle.usage.open()
      autoscaler.open()
      fairShares?.open()
      lifecycle.maxAges.open()
      if (deps.previewDomain.isCustomAllowed) await domains.start()
    },

    /** Waits for dumps under way and closes the driver; sandboxes run on. */
    async close(): Promise<void> {
      await domains.close()
      // A change under way may wait for a transition, which `lifecycle.close` ends.
      const autoscaled = Promise.all([autoscaler.close(), fairShares?.close()])
      await lifecycle.close()
      await autoscaled
      await checkpoints.close()
      await driver.close()
      await egressLog?.close()
    },

    /** Deletes the records of sandboxes that stopped before, with what the driver may still have of them. */
    purge: (stoppedBefore: Date, signal: AbortSignal) => purgeSandboxes(deps, stoppedBefore, signal),

    /** Deletes checkpoints whose time is over. */
    deleteExpiredCheckpoints: (signal: AbortSignal) => checkpoints.deleteExpired(signal),

    /** Removes caches of builds that were last used before. */
    removeUnusedCaches: (usedBefore: Date, signal: AbortSignal) => caches.removeUnused(usedBefore, signal),

    /** See `OrganisationSandboxes`. */
    hibernateAll: (orgId: string) => ofOrganisation.hibernateAll(orgId),
    removeAll: (orgId: string) => ofOrganisation.removeAll(orgId),

    /** Removes what the driver has had in quarantine for long enough. */
    emptyQuarantine: async () => driver.emptyQuarantine?.(),

    async create(orgId: string, input: CreateSandbox, { creation }: CreateOptions = {}): Promise<StartedSandbox> {
      const token = input.previewAuth && previewToken(input.previewAuth, 'previewAuth', creation)
      const shown = defined({ previewAuthToken: token })
      const made = await lifecycle.findMade(orgId, creation)
      if (made) return { sandbox: made, ...shown }
      const { given, rest } = takeEgress(input)
      const draft = draftOf(orgId, rest, deps, creation)
      const prepared = await prepareEgress(egress, orgId, given, { envs: draft.envs, isBuild: isBuild(draft.id) })
      draft.envs = { ...prepared.envs, ...draft.envs }
      if (prepared.egress !== undefined) draft.egress = prepared.egress
      if (token !== undefined) draft.previewTokenHash = sha256(token)
      if (input.volumes) draft.volumes = await volumes.resolve(orgId, input.volumes, draft.id)
      const { user } = input
      const prepare = user === undefined ? undefined : (inside: Guest) => assertUserExists(inside, user)
      const options = { isAnnounced: input.id !== undefined, creation, ...defined({ prepare }) }
      const sandbox = await lifecycle.create(draft, options)
      return { sandbox, ...shown }
    },

    /** How many warm sandboxes wait, by the image or checkpoint that they come from. */
    warmCounts: () => lifecycle.warm.countReady(),

    /** An id for a sandbox that the caller announces before it creates it, which it does soon. */
    async newId(orgId: string, input?: CreateSandbox): Promise<string> {
      return reserve(orgId, input) ?? newId('sb-')
    },

    /** The id of a warm sandbox of the image, if one waits that serves this. The caller creates it within a minute. */
    reserve,

    /** Throws `conflict` for the name of a sandbox other than `exceptId`, before work whose end finds that out. */
    async assertNameFree(orgId: string, name: string, exceptId?: string): Promise<void> {
      assertName(name)
      const taken = await store.sandboxNamed(name, orgId)
      if (taken === undefined || taken === exceptId) return
      throw new ServiceError('conflict', 'name is that of another sandbox', { details: { field: 'name' } })
    },

    /** The id of the sandbox that has this name. Throws `not_found`. */
    async idNamed(orgId: string, name: string): Promise<string> {
      const id = await store.sandboxNamed(name, orgId)
      if (id === undefined) throw new ServiceError('not_found', `no sandbox is named ${name}`)
      return id
    },

    /** Throws what `create` would throw now for these volumes. */
    async assertVolumes(orgId: string, mounts: readonly VolumeMount[]): Promise<void> {
      await volumes.resolve(orgId, mounts)
    },

    /** Gives back an id that no caller will use. Harmless for one that was used. */
    release: (sandboxId: string) => lifecycle.warm.release(sandboxId),

    get: (orgId: string, sandboxId: string) => lifecycle.read(sandboxId, orgId),

    /** Of any organisation. The address of the caller has shown that it is inside the sandbox. Throws `not_found`. */
    readOfCaller: (sandboxId: string) => lifecycle.read(sandboxId),

    async list(orgId: string, query: ListSandboxes): Promise<Page<Sandbox>> {
      const { status, limit = listLimitDefault, ...rest } = query
      const statuses = status === undefined ? (['creating', 'running', 'hibernated', 'error'] as const) : [status]
      return await store.listSandboxes({ orgId, statuses, limit, ...rest })
    },

    /** Those of image builds, of all organisations, that are not stopped. */
    async listOfBuilds(): Promise<Sandbox[]> {
      const sandboxes = await store.sandboxesIn(['creating', 'running', 'hibernated', 'error'])
      return sandboxes.filter(({ id }) => isBuild(id))
    },

    /** Stops it for good. Repeating it is harmless. */
    async delete(orgId: string, sandboxId: string): Promise<void> {
      await lifecycle.read(sandboxId, orgId)
      await lifecycle.delete(sandboxId)
      await stepMounts.release(sandboxId)
    },

    /** Replaces the rolling idle timeout and restarts its clock. */
    async setTimeout(orgId: string, sandboxId: string, timeoutSeconds: number): Promise<void> {
      assertInteger(timeoutSeconds, 'timeout', 0, limits.timeoutSecondsMax)
      await alive(orgId, sandboxId)
      await lifecycle.changeAlive(sandboxId, { timeoutSeconds })
    },

    /** Changes its name, and what ends it; `timeout` and `onIdle` restart the idle clock. Throws `conflict` for a name that is taken. */
    async update(orgId: string, sandboxId: string, change: ChangeSandbox): Promise<Sandbox> {
      assertNewSandbox(defined(change), limits)
      const sandbox = await alive(orgId, sandboxId)
      const { maxAgeSeconds, ...rest } = change
      if (maxAgeSeconds === undefined) return await lifecycle.changeAlive(sandboxId, rest)
      const expiresAt = expiryOf(sandbox.createdAt, maxAgeSeconds)
      const ageSeconds = Math.ceil((Date.now() - sandbox.createdAt.getTime()) / 1000)
      const isAhead = expiresAt === undefined || expiresAt.getTime() > Date.now()
      assertInput(
        isAhead,
        'maxAgeSeconds',
        `must be above the age of the sandbox, which is ${ageSeconds}, or 0 for none`,
      )
      return await lifecycle.changeAlive(sandboxId, { ...rest, expiresAt })
    },

    async hibernate(orgId: string, sandboxId: string): Promise<{ sizeBytes: number }> {
      await lifecycle.read(sandboxId, orgId)
      return (await lifecycle.hibernate(sandboxId)) ?? { sizeBytes: 0 }
    },

    /** `memory: false` starts it on its disk and keeps its memory as a checkpoint; `true` tries again to restore memory that was refused. */
    async wake(orgId: string, sandboxId: string, { timeoutSeconds, memory }: WakeSandbox = {}): Promise<Sandbox> {
      if (timeoutSeconds !== undefined) assertInteger(timeoutSeconds, 'timeout', 0, limits.timeoutSecondsMax)
      await lifecycle.read(sandboxId, orgId)
      const start = memory === undefined ? undefined : memory ? fromMemory : fromDisk
      return await lifecycle.wakes.wake(sandboxId, defined({ timeoutSeconds, start }))
    },

    /** Ends all processes and starts the sandbox again on its disk. */
    reboot: (orgId: string, sandboxId: string) => restart(orgId, sandboxId, { graceMs: rebootGraceMs }),
    /** Likewise, without time for processes to end by themselves. */
    powerCycle: (orgId: string, sandboxId: string) => restart(orgId, sandboxId, {}),

    /** When the idle timeout runs out without further activity; undefined when it never does. */
    endAt(sandbox: Sandbox): Date | undefined {
      if (sandbox.status !== 'running' || sandbox.timeoutSeconds === 0) return undefined
      const activeAt = lifecycle.clocks.activeAt(sandbox.id) ?? sandbox.activeAt
      return new Date(activeAt.getTime() + sandbox.timeoutSeconds * 1000)
    },

    async setTags(orgId: string, sandboxId: string, tags: Record<string, string>): Promise<Sandbox> {
      assertTags(tags)
      await alive(orgId, sandboxId)
      return await lifecycle.changeAlive(sandboxId, { tags, tagsUpdatedAt: new Date() })
    },

    tagKeys: (orgId: string, reach?: KeyReach) => store.tagKeys(orgId, reach),
  }

  function reserve(orgId: string, input: CreateSandbox = {}): string | undefined {
    const { image = startDefaults.image } = input
    return mayBeWarm(input) ? lifecycle.warm.reserve({ ...startDefaults, image }, orgId) : undefined
  }

  function fromMemory(sandbox: Sandbox, signal: AbortSignal): Promise<void> {
    return driver.wake(specOf(sandbox), signal)
  }

  async function fromDisk(sandbox: Sandbox, signal: AbortSignal): Promise<void> {
    await checkpoints.keepMemory(sandbox)
    await driver.restart(specOf(sandbox), { signal })
  }

  async function restart(orgId: string, sandboxId: string, options: { graceMs?: number }): Promise<Sandbox> {
    await lifecycle.read(sandboxId, orgId)
    return await lifecycle.replace(sandboxId, (spec) => driver.restart(spec, options))
  }

  async function alive(orgId: string, sandboxId: string): Promise<Sandbox> {
    const sandbox = await lifecycle.read(sandboxId, orgId)
    assertAlive(sandbox)
    return sandbox
  }
}

function draftOf(
  orgId: string,
  input: Omit<CreateSandbox, keyof EgressInput>,
  { limits, defaultUser, defaults = {} }: Pick<SandboxServiceDeps, 'limits' | 'defaultUser' | 'defaults'>,
  creation?: Creation,
): Sandbox {
  assertNewSandbox(input, limits)
  const asked = withDefaults(input, defaults)
  const { id = creation?.id('sb-'), user = defaultUser, previewAuth: _auth, volumes: _mounts, ...given } = asked
  const isName = given.image === undefined || /^[a-z0-9][a-z0-9._-]{0,63}$/.test(given.image)
  assertInput(isName, 'templateID', 'must be the name of an image')
  return newSandbox(orgId, { ...given, id, commandDefaults: withUser(undefined, user) })
}
