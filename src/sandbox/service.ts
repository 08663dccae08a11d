import type { EventBus } from '../events/index.ts'
import type { Creation } from '../lib/creation.ts'
import type { Log } from '../lib/log.ts'
import { sha256 } from '../lib/secret.ts'
import type { CreateSandbox, ListSandboxes, SandboxService } from './api.ts'
import { Checkpoints } from './checkpoints.ts'
import { DomainProofs } from './domain-proofs.ts'
import type { RuntimeDriver } from './ports/runtime-driver.ts'
import { Exec } from './exec.ts'
import { Files } from './files.ts'
import type { Guest } from './ports/guest.ts'
import { demand, demandEnvs, demandInteger, demandTags, previewToken } from './input.ts'
import { Lifecycle } from './lifecycle.ts'
import { newSandbox } from './new-sandbox.ts'
import type { SandboxLimits } from './limits.ts'
import { resumeStrategies } from './patch.ts'
import { Patches } from './patches.ts'
import { type PreviewDomain, Previews } from './previews.ts'
import { purgeSandboxes } from './purge.ts'
import { recover } from './recovery.ts'
import { type Sandbox, demandAlive } from './sandbox.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'
import type { TxtResolver } from './txt-resolver.ts'

export interface SandboxServiceDeps {
  store: SandboxStore
  driver: RuntimeDriver
  /** Speaks to the program inside one sandbox. */
  guest: (sandboxId: string) => Guest
  bus: EventBus
  log: Log
  limits: SandboxLimits
  previewDomain: PreviewDomain
  /** Where proofs of custom domains are looked up. */
  txtResolver: TxtResolver
  signingSecret: string
}

export interface RunningSandboxService extends SandboxService {
  /** Opens the driver, brings records and machines in line and starts the clocks. Call once before anything else. */
  start(): Promise<void>
  /** Waits for dumps under way and lets go of the driver; sandboxes run on. */
  close(): Promise<void>
}

const listLimitDefault = 1000
const listLimitMax = 1000
const metadataBytesMax = 64 * 1024
/** What processes have to end by themselves at a reboot. */
const rebootGraceMs = 3000
const memoryMbPerCpu = 4096
const purgeAfterMs = 24 * 3600 * 1000
const purgeEveryMs = 10 * 60 * 1000

/** See {@link SandboxService}. */
export function createSandboxService(deps: SandboxServiceDeps): RunningSandboxService {
  const { store, driver, guest, log, limits } = deps
  const patches = new Patches(store, limits, deps.bus)
  const lifecycle = new Lifecycle(deps, async (waking) => {
    const found = await patches.of(waking)
    return (inside, sandbox, signal) => patches.run(inside, sandbox, found, resumeStrategies, signal)
  })
  const checkpoints = new Checkpoints({ store, driver, lifecycle, patches, limits, log })
  const proofs = new DomainProofs({
    store,
    resolver: deps.txtResolver,
    secret: deps.signingSecret,
    log,
    intervalMs: limits.domainCheckMs,
  })
  const previews = new Previews({
    store,
    lifecycle,
    guest,
    domain: deps.previewDomain,
    proofs,
    unverifiedMax: limits.unverifiedDomainsMax,
  })
  const files = new Files({ store, lifecycle, signingSecret: deps.signingSecret })
  const exec = new Exec(lifecycle)
  let purge: NodeJS.Timeout | undefined

  return {
    checkpoints,
    patches,
    previews,
    files,
    exec,

    async start() {
      await recover({ store, driver, lifecycle, log })
      if (deps.previewDomain.isCustomAllowed) await proofs.start()
      purge = setInterval(() => {
        purgeSandboxes(deps, new Date(Date.now() - purgeAfterMs)).catch((error: unknown) => {
          log.warn({ err: error }, 'stopped sandboxes could not be forgotten')
        })
      }, purgeEveryMs).unref()
    },

    async close() {
      clearInterval(purge)
      await proofs.close()
      await lifecycle.close()
      await checkpoints.close()
      await driver.close()
    },

    async create(orgId, input, { creation } = {}) {
      const token = input.previewAuth && previewToken(input.previewAuth, 'previewAuth', creation)
      const shown = token === undefined ? {} : { previewAuthToken: token }
      const made = await lifecycle.made(orgId, creation)
      if (made) return { sandbox: made, ...shown }
      const draft = draftOf(orgId, input, limits, creation)
      if (token !== undefined) draft.previewTokenHash = sha256(token)
      const sandbox = await lifecycle.create(draft, { announced: input.id !== undefined, creation })
      return { sandbox, ...shown }
    },

    get: (orgId, sandboxId) => lifecycle.get(orgId, sandboxId),

    async list(orgId, query: ListSandboxes) {
      const { status, limit = listLimitDefault, cursor } = query
      demandInteger(limit, 'limit', 1, listLimitMax)
      const statuses = status === undefined ? (['creating', 'running', 'hibernated', 'error'] as const) : [status]
      return await store.listSandboxes({ orgId, statuses, limit, ...(cursor === undefined ? {} : { cursor }) })
    },

    async delete(orgId, sandboxId) {
      await lifecycle.get(orgId, sandboxId)
      await lifecycle.delete(sandboxId)
    },

    async setTimeout(orgId, sandboxId, timeoutSeconds) {
      demandInteger(timeoutSeconds, 'timeout', 0, limits.timeoutSecondsMax)
      await alive(orgId, sandboxId)
      await lifecycle.change(sandboxId, { timeoutSeconds })
    },

    async hibernate(orgId, sandboxId) {
      await lifecycle.get(orgId, sandboxId)
      return (await lifecycle.hibernate(sandboxId)) ?? { sizeBytes: 0 }
    },

    async wake(orgId, sandboxId, timeoutSeconds) {
      if (timeoutSeconds !== undefined) demandInteger(timeoutSeconds, 'timeout', 0, limits.timeoutSecondsMax)
      await lifecycle.get(orgId, sandboxId)
      return await lifecycle.wake(sandboxId, timeoutSeconds)
    },

    async reboot(orgId, sandboxId) {
      await lifecycle.get(orgId, sandboxId)
      return await lifecycle.replace(sandboxId, (spec) => driver.restart(spec, { graceMs: rebootGraceMs }))
    },

    async powerCycle(orgId, sandboxId) {
      await lifecycle.get(orgId, sandboxId)
      return await lifecycle.replace(sandboxId, (spec) => driver.restart(spec))
    },

    async scale(orgId, sandboxId, memoryMb) {
      demandInteger(memoryMb, 'memoryMB', limits.memoryMbMin, limits.memoryMbMax)
      const { cpuCount } = await lifecycle.get(orgId, sandboxId)
      return await lifecycle.resize(sandboxId, { memoryMb, cpuCount: Math.max(cpuCount, cpusFor(memoryMb)) })
    },

    endAt(sandbox) {
      if (sandbox.status !== 'running' || sandbox.timeoutSeconds === 0) return undefined
      const activeAt = lifecycle.clocks.activeAt(sandbox.id) ?? sandbox.activeAt
      return new Date(activeAt.getTime() + sandbox.timeoutSeconds * 1000)
    },

    async setTags(orgId, sandboxId, tags) {
      demandTags(tags)
      const sandbox = await alive(orgId, sandboxId)
      return (await lifecycle.change(sandboxId, { tags, tagsUpdatedAt: new Date() })) ?? sandbox
    },

    tagKeys: (orgId) => store.tagKeys(orgId),
  }

  async function alive(orgId: string, sandboxId: string): Promise<Sandbox> {
    const sandbox = await lifecycle.get(orgId, sandboxId)
    demandAlive(sandbox)
    return sandbox
  }
}

/** Memory and CPU grow together, as users of the public SDK expect of a scale. */
function cpusFor(memoryMb: number): number {
  return Math.ceil(memoryMb / memoryMbPerCpu)
}

function draftOf(orgId: string, input: CreateSandbox, limits: SandboxLimits, creation?: Creation): Sandbox {
  const { timeoutSeconds, cpuCount, memoryMb, diskMb, envs = {}, metadata = {} } = input
  if (timeoutSeconds !== undefined) demandInteger(timeoutSeconds, 'timeout', 0, limits.timeoutSecondsMax)
  if (cpuCount !== undefined) demandInteger(cpuCount, 'cpuCount', 1, limits.cpuCountMax)
  if (memoryMb !== undefined) demandInteger(memoryMb, 'memoryMB', limits.memoryMbMin, limits.memoryMbMax)
  if (diskMb !== undefined) demandInteger(diskMb, 'diskMB', limits.diskMbMin, limits.diskMbMax)
  demandEnvs(envs)
  const metadataBytes = Buffer.byteLength(JSON.stringify(metadata))
  demand(metadataBytes <= metadataBytesMax, 'metadata', `must be at most ${metadataBytesMax} bytes of JSON`)
  const { id = creation?.id('sb-'), image } = input
  if (image !== undefined)
    demand(/^[a-z0-9][a-z0-9._-]{0,63}$/.test(image), 'templateID', 'must be the name of an image')
  return newSandbox(orgId, { id, image, timeoutSeconds, cpuCount, memoryMb, diskMb, envs, metadata })
}
