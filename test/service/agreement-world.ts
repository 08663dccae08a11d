/**
 * Records and machines after an end of the server at a step of a change. A step is a call of a port (driver, guest, records of sandboxes
 * or images), before it happens or after it has happened and nobody hears of it, or what a machine does in the middle of one.
 */
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { sandboxStatuses } from '../../src/sandbox/index.ts'
import { imagesOf } from '../../src/image/index.ts'
import type { Store } from '../../src/store/index.ts'
import { openFreshStore } from '../support/database.ts'
import { FakeTxtRecords } from '../support/fake-txt-records.ts'
import { type Content, KeptMachines } from '../support/kept-machines.ts'
import { makeOrganisation } from '../support/sandbox-service.ts'
import { type Host, Life, serve, type Server, type Step } from '../support/server-lives.ts'
import { forgetSandboxes } from './world.ts'

let folder: string
let store: Store

/** Registers hooks that open a store for the tests of a file. */
export function useStore(): void {
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'atoll-agreement-'))
    store = await openFreshStore()
  })
  after(async () => {
    await store.close()
    await rm(folder, { recursive: true })
  })
}

export interface Change {
  /** Steps that it has at least; it is tried at all that it has. */
  steps: readonly string[]
  /** Makes the state before the change, acknowledged, and returns an id for it. */
  prepare: (server: Server) => Promise<string>
  change: (server: Server, id: string) => Promise<unknown>
  /** Throws unless the change has had its effect. */
  check: (server: Server, id: string) => Promise<void>
  /** What happens after `prepare`, while no server runs. */
  meanwhile?: (host: Host, id: string) => Promise<void>
  /** It gives up what the sandbox holds. */
  isReplacement?: true
  /** The server ends in its start, before the change. */
  isInStart?: true
  warmSandboxesMax?: number
}

export const tags = { kept: 'yes' }

/** A running sandbox, with what each start must find again. */
export async function sandbox({ service, host: { orgId } }: Server): Promise<string> {
  const { id } = (await service.create(orgId, { timeoutSeconds: 1234, user: 'me' })).sandbox
  await service.setTags(orgId, id, tags)
  await service.previews.put(orgId, id, { port: 80 })
  return id
}

export async function asleep(server: Server): Promise<string> {
  const id = await sandbox(server)
  await server.service.hibernate(server.host.orgId, id)
  return id
}

async function newHost(): Promise<Host> {
  const { images } = store
  for (const status of ['building', 'ready', 'failed'] as const)
    for (const { id } of await images.imagesIn(status)) await images.deleteImage(id)
  await images.deleteUnusedLayers()
  await forgetSandboxes(store)
  const { id: orgId } = await makeOrganisation(store)
  const dir = await mkdtemp(join(folder, 'builds-'))
  return { store, orgId, machines: new KeptMachines(), records: new FakeTxtRecords(), dir, secret: 's'.repeat(64) }
}

/** Every record has what it says, and nothing is there without a record. */
async function assertAgreement({ host }: Server): Promise<void> {
  const { machines, orgId } = host
  const { sandboxes, images } = store
  const rows = await sandboxes.sandboxesIn(sandboxStatuses)
  for (const { id, status, cpuCount, memoryMb, diskMb, volumes, reason, reasonMessage } of rows) {
    const machine = machines.machines.get(id)
    const expected = status === 'running' || status === 'hibernated' ? status : undefined
    assert.equal(machine?.state, expected, `${id} is ${status}: ${reasonMessage}`)
    assert.notEqual(status, 'creating')
    if (reason === 'memory_not_restorable') assert.ok(machines.refused.has(machines.contents.get(id)?.memory ?? ''))
    if (reasonMessage?.startsWith('its processes ended')) assert.ok(!machines.hasMemory(id), reasonMessage)
    if (machine?.state !== 'running') continue
    const { spec } = machine
    assert.deepEqual([spec.cpuCount, spec.memoryMb, spec.diskMb], [cpuCount, memoryMb, diskMb], id)
    assert.deepEqual(
      spec.volumes ?? [],
      volumes.map(({ name: _name, ...volume }) => volume),
    )
  }
  const known = new Set(rows.map(({ id }) => id))
  assert.deepEqual(
    [...machines.machines.keys()].filter((id) => !known.has(id) && !machines.warm.has(id)),
    [],
  )
  const checkpoints = await Promise.all((await sandboxes.checkpointIds()).map((id) => sandboxes.checkpoint(id)))
  for (const one of checkpoints) assert.ok(one?.status !== 'processing')
  const ready = checkpoints.flatMap((one) => (one?.status === 'ready' ? [one.id] : []))
  assert.deepEqual([...machines.checkpoints].toSorted(), ready.toSorted())
  const volumes = await sandboxes.listVolumes(orgId)
  const snapshots = (await Promise.all(volumes.map(({ id }) => sandboxes.listVolumeSnapshots(id)))).flat()
  const ids = [...volumes, ...snapshots].map(({ id }) => id)
  assert.deepEqual([...machines.volumes.keys()].toSorted(), ids.toSorted())
  for await (const { name, status, checkpointId = '', isPublic } of imagesOf(images, { orgId })) {
    if (status === 'ready') assert.ok(ready.includes(checkpointId), name)
    const found = await sandboxes.checkpoint(checkpointId)
    if (name !== undefined) assert.equal(found?.isPublic ?? false, isPublic, `${name} is public`)
  }
}

async function assertKept(id: string): Promise<void> {
  const row = await store.sandboxes.sandbox(id)
  if (row === undefined || row.status === 'stopped') return
  const { tags: found, timeoutSeconds, commandDefaults } = row
  if (Object.keys(found).length === 0) return
  assert.deepEqual([found, commandDefaults], [tags, { user: 'me' }])
  assert.ok([1234, 99, 77].includes(timeoutSeconds))
}

/** What a sandbox held, it holds still, or a checkpoint of it does. */
function assertHeld({ machines }: Host, id: string, held: Content | undefined): void {
  if (held === undefined) return
  const places = [id, ...machines.checkpoints].map((place) => machines.contents.get(place))
  assert.ok(
    places.some((content) => content?.disk === held.disk && content.memory === held.memory),
    `${JSON.stringify(held)} is lost: ${JSON.stringify(places)}`,
  )
}

/** Kills a server at a step of the change. Returns the calls that the change has made. */
async function killedAt(tried: Change, step?: Step): Promise<string[]> {
  const { prepare, meanwhile, change, check, isReplacement, isInStart, warmSandboxesMax } = tried
  const host = await newHost()
  const calm = await serve(host)
  const id = await prepare(calm)
  const held = isReplacement ? undefined : host.machines.contents.get(id)
  await calm.close()
  await meanwhile?.(host, id)
  const life = new Life(step)
  if (isInStart) life.arm()
  const started = serve(host, life, warmSandboxesMax)
  if (!isInStart) {
    await started
    life.arm()
  }
  const changed = started.then((first) => change(first, id))
  changed.catch(() => undefined)
  await Promise.race([changed, life.ended.promise])
  const isAnswered = !life.hasEnded
  life.end()
  await life.settled()
  const second = await serve(host, new Life(), warmSandboxesMax)
  if (isAnswered) await check(second, id)
  await buildsEnded(second)
  await assertAgreement(second)
  await assertKept(id)
  assertHeld(host, id, held)
  const refused = (error: unknown) => {
    const codes = ['conflict', 'not_found', 'sandbox_stopped'] as const
    if (!codes.some((code) => isServiceError(error, code))) throw error
  }
  await change(second, id).catch(refused)
  await check(second, id)
  await assertAgreement(second)
  assertHeld(host, id, held)
  await second.close()
  return life.calls
}

/** A start goes on with detached builds. */
async function buildsEnded({ images, host: { orgId } }: Server): Promise<void> {
  for await (const { id, status } of images.list(orgId)) if (status === 'building') await images.follow(orgId, id)
}

/** Reads change nothing: to end at one is to end at the step before it. */
const changing = /^(driver|guest|machine|quarantine)\.|\.(insert|update|delete|put|verify|set|detach|forget)/

/** Registers a test for each change. */
export function agreementTests(changes: Record<string, Change>): void {
  for (const [name, change] of Object.entries(changes)) {
    test(`agreement: record and machine after the server has ended at each step of: ${name}`, async () => {
      const calls = await killedAt(change)
      for (const step of change.steps) assert.ok(calls.includes(step), `${step} is none of ${calls.join(', ')}`)
      for (const call of calls.filter((one) => changing.test(one))) {
        for (const moment of ['before', 'after'] as const) {
          await killedAt(change, { call, moment }).catch((cause: unknown) => {
            throw new Error(`${name}, ${moment} ${call}: ${String(cause)}`, { cause })
          })
        }
      }
    })
  }
}
