/** Changes of one sandbox, checkpoint, preview, volume or image, each ended at every step; see `agreement-world.ts`. */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Sandbox } from '../../src/sandbox/index.ts'
import type { Scaling } from '../../src/sandbox/scaling.ts'
import type { Server } from '../support/server-lives.ts'
import { agreementTests, asleep, type Change, sandbox, useStore } from './agreement-world.ts'

useStore()

const diskOnly = { kind: 'disk_only' } as const
const domain = 'shop.example.com'
const stepsOfBuild = [
  'images.insertImage 1',
  'driver.create 1',
  'driver.checkpoint 1',
  'images.putLayer 1',
  'images.updateImage 1',
]
const built = { steps: [{ type: 'add_file' as const, args: { path: '/made', content: 'eA==' } }] }

async function checkpoint(server: Server, sandboxId?: string): Promise<string> {
  const { service, host } = server
  const source = sandboxId ?? (await sandbox(server))
  const { id } = await service.checkpoints.create(host.orgId, source, { name: 'a', ...diskOnly })
  assert.equal((await service.checkpoints.settled(host.orgId, id)).status, 'ready')
  return id
}

async function image(server: Server): Promise<string> {
  return (await server.images.create(server.host.orgId, 'made', built)).id
}

async function rowOf({ service, host }: Server, id: string): Promise<Sandbox> {
  return await service.get(host.orgId, id)
}

async function listed({ service, host }: Server): Promise<Sandbox[]> {
  return (await service.list(host.orgId, {})).items
}

const has =
  (wanted: Partial<Sandbox>) =>
  async (server: Server, id: string): Promise<void> => {
    const row = await rowOf(server, id)
    const found = Object.fromEntries(Object.keys(wanted).map((key) => [key, row[key as keyof Sandbox]]))
    assert.deepEqual(found, wanted)
  }

/** Of a sandbox, and nothing else. */
const sized = ['driver.resize 1', 'sandboxes.updateSandbox 1']

const changes: Record<string, Change> = {
  'scale, up': {
    steps: sized,
    prepare: sandbox,
    change: ({ service, host }, id) => service.scaling.scale(host.orgId, id, 8192),
    check: has({ memoryMb: 8192, cpuCount: 2 }),
  },
  'scale of a hibernated sandbox': {
    steps: ['sandboxes.updateSandbox 1', 'driver.wake 1'],
    prepare: asleep,
    change: ({ service, host }, id) => service.scaling.scale(host.orgId, id, 8192),
    check: has({ memoryMb: 8192, cpuCount: 2, status: 'running' }),
  },
  'limits, down': {
    steps: sized,
    prepare: sandbox,
    change: ({ service, host }, id) => service.scaling.limit(host.orgId, id, { memoryMb: 512, cpuPercent: 50 }),
    check: has({ memoryMb: 512, cpuCount: 0.5 }),
  },
  'limits from inside': {
    steps: sized,
    prepare: sandbox,
    change: ({ service }, id) => service.scaling.limitFromInside(id, { memoryMb: 2048 }),
    check: has({ memoryMb: 2048 }),
  },
  autoscale: {
    steps: sized,
    prepare: async (server) => {
      const id = await sandbox(server)
      const bounds = { enabled: true, minMemoryMb: 1024, maxMemoryMb: 4096 }
      await server.service.scaling.setAutoscale(server.host.orgId, id, bounds)
      return id
    },
    change: ({ service }, id) => (service.scaling as Scaling).follow(id, 4096),
    check: has({ memoryMb: 4096, isAutoscaled: true }),
  },
  'settings of autoscale': {
    steps: ['sandboxes.updateSandbox 1'],
    prepare: sandbox,
    change: ({ service, host }, id) =>
      service.scaling.setAutoscale(host.orgId, id, { enabled: true, minMemoryMb: 1024, maxMemoryMb: 4096 }),
    check: has({ isAutoscaled: true, autoscaleMaxMb: 4096 }),
  },
  'scaling lock': {
    steps: ['sandboxes.updateSandbox 1'],
    prepare: sandbox,
    change: ({ service, host }, id) => service.scaling.setLock(host.orgId, id, true),
    check: has({ isScalingLocked: true }),
  },
  timeout: {
    steps: ['sandboxes.updateSandbox 1'],
    prepare: sandbox,
    change: ({ service, host }, id) => service.setTimeout(host.orgId, id, 99),
    check: async (server, id) => {
      await has({ timeoutSeconds: 99 })(server, id)
      assert.ok(server.service.endAt(await rowOf(server, id)))
    },
  },
  create: {
    steps: ['sandboxes.insertSandbox 1', 'driver.create 1', 'sandboxes.updateSandbox 1'],
    prepare: async () => '',
    change: ({ service, host }) => service.create(host.orgId, { memoryMb: 2048, metadata: { made: 'yes' } }),
    check: async (server) =>
      assert.ok((await listed(server)).some(({ status, metadata }) => status === 'running' && metadata['made'])),
  },
  'create from the warm pool': {
    steps: ['sandboxes.insertSandbox 1', 'driver.create 1', 'sandboxes.updateSandbox 1'],
    prepare: async () => '',
    change: async (server) => {
      const isFilled = () => Object.keys(server.service.warmCounts()).length > 0
      while (!isFilled() && !server.life.hasEnded) await sleep(2)
      return await server.service.create(server.host.orgId, { memoryMb: 2048 })
    },
    check: async (server) => assert.ok((await listed(server)).some(({ memoryMb }) => memoryMb === 2048)),
    warmSandboxesMax: 1,
  },
  'create with a volume': {
    steps: ['sandboxes.insertSandbox 1', 'driver.create 1', 'sandboxes.updateSandbox 1'],
    prepare: async ({ service, host }) => (await service.volumes.create(host.orgId, { name: 'v' })).id,
    change: async ({ service, host }) => {
      // What an interrupted start has left has the volume until it is deleted.
      for (const { id, status } of (await service.list(host.orgId, {})).items)
        if (status === 'error') await service.delete(host.orgId, id)
      return await service.create(host.orgId, { volumes: [{ name: 'v', path: '/v' }] })
    },
    check: async ({ service, host }) => {
      const { attachments } = await service.volumes.get(host.orgId, 'v')
      assert.equal(attachments.length, 1)
    },
  },
  'start from a checkpoint, with a patch': {
    steps: ['sandboxes.insertSandbox 1', 'driver.create 1', 'guest.run 1', 'sandboxes.updateSandbox 1'],
    prepare: async (server) => {
      const id = await checkpoint(server)
      await server.service.patches.create(server.host.orgId, id, { script: 'patched' })
      return id
    },
    change: ({ service, host }, id) => service.checkpoints.start(host.orgId, id, {}),
    check: async (server, id) => {
      const started = (await listed(server)).filter(({ fromCheckpointId }) => fromCheckpointId === id)
      const running = started.filter(({ status }) => status === 'running')
      assert.ok(running.length > 0)
      for (const one of running) assert.ok(server.host.machines.scripts.includes(`${one.id}: patched`))
    },
  },
  hibernation: {
    steps: ['driver.hibernate 1', 'sandboxes.updateSandbox 1'],
    prepare: sandbox,
    change: ({ service, host }, id) => service.hibernate(host.orgId, id),
    check: has({ status: 'hibernated' }),
  },
  wake: {
    steps: ['driver.wake 1', 'sandboxes.updateSandbox 1'],
    prepare: asleep,
    change: ({ service, host }, id) => service.wake(host.orgId, id, { timeoutSeconds: 77 }),
    check: has({ status: 'running', timeoutSeconds: 77 }),
  },
  reboot: {
    steps: ['driver.restart 1', 'machine.restart 1', 'sandboxes.updateSandbox 1'],
    isReplacement: true,
    prepare: sandbox,
    change: ({ service, host }, id) => service.reboot(host.orgId, id),
    check: has({ status: 'running' }),
  },
  'restore in place': {
    steps: [
      'sandboxes.updateSandbox 1',
      'driver.restore 1',
      'machine.restore 1',
      'machine.restore 2',
      'sandboxes.updateSandbox 2',
    ],
    isReplacement: true,
    prepare: async (server) => {
      const id = await sandbox(server)
      await checkpoint(server, id)
      return id
    },
    change: async ({ service, host }, id) => {
      const [one] = await service.checkpoints.list(host.orgId, id)
      await service.checkpoints.restore(host.orgId, id, one!.id)
    },
    check: async (server, id) => {
      const { status, restores } = await rowOf(server, id)
      assert.ok(status === 'running' && restores >= 1)
      const { contents } = server.host.machines
      const [one] = await server.service.checkpoints.list(server.host.orgId, id)
      assert.equal(contents.get(id)?.disk, contents.get(one!.id)?.disk)
    },
  },
  'deletion of a sandbox': {
    steps: ['sandboxes.updateSandbox 1', 'driver.delete 1'],
    isReplacement: true,
    prepare: sandbox,
    change: ({ service, host }, id) => service.delete(host.orgId, id),
    check: has({ status: 'stopped' }),
  },
  checkpoint: {
    steps: ['sandboxes.insertCheckpoint 1', 'driver.checkpoint 1', 'sandboxes.updateCheckpoint 1'],
    prepare: sandbox,
    change: async ({ service, host }, id) => {
      for (const one of await service.checkpoints.list(host.orgId, id))
        if (one.status === 'failed') await service.checkpoints.delete(host.orgId, id, one.id)
      const { id: made } = await service.checkpoints.create(host.orgId, id, { name: 'c', ...diskOnly })
      await service.checkpoints.settled(host.orgId, made)
    },
    check: async ({ service, host }, id) => {
      const all = await service.checkpoints.list(host.orgId, id)
      assert.deepEqual(
        all.map(({ name, status }) => [name, status]),
        [['c', 'ready']],
      )
    },
  },
  'deletion of a checkpoint': {
    steps: ['sandboxes.deleteCheckpoint 1', 'driver.deleteCheckpoint 1'],
    prepare: async (server) => {
      const id = await sandbox(server)
      await checkpoint(server, id)
      return id
    },
    change: async ({ service, host }, id) => {
      const [one] = await service.checkpoints.list(host.orgId, id)
      if (one) await service.checkpoints.delete(host.orgId, id, one.id)
    },
    check: async ({ service, host }, id) => assert.deepEqual(await service.checkpoints.list(host.orgId, id), []),
  },
  'publication of a checkpoint': {
    steps: ['sandboxes.updateCheckpoint 1'],
    prepare: checkpoint,
    change: ({ service, host }, id) => service.checkpoints.publish(host.orgId, id, true),
    check: async ({ service, host }, id) =>
      assert.equal((await service.checkpoints.usable(host.orgId, id)).isPublic, true),
  },
  patch: {
    steps: ['sandboxes.insertPatch 1'],
    prepare: checkpoint,
    change: ({ service, host }, id) => service.patches.create(host.orgId, id, { script: 'true' }),
    check: async ({ service, host }, id) => assert.ok((await service.patches.list(host.orgId, id)).length > 0),
  },
  'preview with a domain': {
    steps: ['sandboxes.putPreview 1'],
    prepare: sandbox,
    change: ({ service, host }, id) =>
      service.previews.put(host.orgId, id, { port: 81, auth: { scheme: 'bearer' }, domain }),
    check: async ({ service, host }, id) => {
      const [, preview] = await service.previews.list(host.orgId, id)
      assert.equal(preview?.customHostname, domain)
    },
  },
  'verification of a domain': {
    steps: ['sandboxes.verifyPreview 1'],
    prepare: async ({ service, host }) => {
      const [first, second] = [await service.create(host.orgId, {}), await service.create(host.orgId, {})]
      const { preview } = await service.previews.put(host.orgId, first.sandbox.id, { port: 80, domain })
      host.records.add(service.previews.verification(preview)!)
      assert.ok(second)
      return first.sandbox.id
    },
    change: ({ service, host }, id) => service.previews.list(host.orgId, id),
    check: async ({ service }, id) => assert.equal((await service.previews.resolve(domain))?.sandbox.id, id),
  },
  'deletion of a preview': {
    steps: ['sandboxes.deletePreview 1'],
    prepare: sandbox,
    change: ({ service, host }, id) => service.previews.delete(host.orgId, id, 80),
    check: async ({ service, host }, id) => assert.deepEqual(await service.previews.list(host.orgId, id), []),
  },
  volume: {
    steps: ['driver.createVolume 1', 'sandboxes.insertVolume 1'],
    prepare: async () => '',
    change: ({ service, host }) => service.volumes.create(host.orgId, { name: 'v', sizeMb: 128 }),
    check: async ({ service, host }) => assert.equal((await service.volumes.get(host.orgId, 'v')).volume.sizeMb, 128),
  },
  'snapshot of a volume': {
    steps: ['driver.snapshotVolume 1', 'sandboxes.insertVolumeSnapshot 1'],
    prepare: async ({ service, host }) => (await service.volumes.create(host.orgId, { name: 'v' })).id,
    change: ({ service, host }) => service.volumes.createSnapshot(host.orgId, 'v', 's'),
    check: async ({ service, host }) => assert.equal((await service.volumes.listSnapshots(host.orgId, 'v')).length, 1),
  },
  'deletion of a volume': {
    steps: ['driver.deleteVolume 1'],
    prepare: async ({ service, host }) => (await service.volumes.create(host.orgId, { name: 'v' })).id,
    change: ({ service, host }) => service.volumes.delete(host.orgId, 'v'),
    check: async ({ service, host }) => assert.deepEqual(await service.volumes.list(host.orgId), []),
  },
  'build of an image': {
    steps: stepsOfBuild,
    prepare: async () => '',
    change: ({ images, host }) => images.create(host.orgId, 'made', built),
    check: async ({ images, host }) => assert.equal((await images.get(host.orgId, 'made')).status, 'ready'),
  },
  'detached build of an image': {
    steps: stepsOfBuild,
    prepare: async () => '',
    change: async ({ images, host }) => {
      await images.createDetached(host.orgId, 'made', built)
      await images.follow(host.orgId, 'made')
    },
    check: async ({ images, host }) => assert.equal((await images.follow(host.orgId, 'made')).status, 'ready'),
  },
  'import of an image': {
    steps: ['images.insertImage 1', 'sandboxes.insertCheckpoint 1', 'driver.importImage 1', 'images.updateImage 1'],
    prepare: async () => '',
    change: ({ images, host }) => images.create(host.orgId, 'made', { oci: 'registry.example.com/tools:1' }),
    check: async ({ images, host }) => assert.equal((await images.get(host.orgId, 'made')).status, 'ready'),
  },
  'publication of an image': {
    steps: ['sandboxes.updateCheckpoint 1', 'images.updateImage 1'],
    prepare: image,
    change: ({ images, host }) => images.publish(host.orgId, 'made', true),
    check: async ({ images, host }) => assert.equal((await images.get(host.orgId, 'made')).isPublic, true),
  },
  'end of the publication of an image': {
    steps: ['sandboxes.updateCheckpoint 1', 'images.updateImage 1'],
    prepare: async (server) => {
      const id = await image(server)
      await server.images.publish(server.host.orgId, id, true)
      return id
    },
    change: ({ images, host }) => images.publish(host.orgId, 'made', false),
    check: async ({ images, host }) => assert.equal((await images.get(host.orgId, 'made')).isPublic, false),
  },
  'image of the defaults': {
    steps: ['images.insertImage 1', 'driver.create 1', 'images.updateImage 1', 'sandboxes.updateCheckpoint 1'],
    prepare: async () => '',
    change: ({ images, host }) => images.startSandbox(host.orgId, { snapshot: 'defined' }, {}),
    check: async (server) => assert.ok((await listed(server)).some(({ envs }) => envs['A'] === 'defined')),
  },
  'deletion of an image': {
    steps: ['images.deleteImage 1', 'sandboxes.deleteCheckpoint 1', 'driver.deleteCheckpoint 1'],
    prepare: image,
    change: ({ images, host }, id) => images.delete(host.orgId, id),
    check: async ({ images, host }) => assert.deepEqual(await Array.fromAsync(images.list(host.orgId)), []),
  },
}

agreementTests(changes)
