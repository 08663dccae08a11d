import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { newId } from '../../src/lib/id.ts'
import { forgetSandboxes, hold, throwsCode, worlds } from './world.ts'

const { makeSandbox, makeWorld, sharedStore } = worlds()

afterEach(() => forgetSandboxes(sharedStore()))

/** A sandbox with two checkpoints, whose disks differ. */
async function treeWorld() {
  const world = await makeSandbox()
  const { machines, service, sandbox, orgId } = world
  const [one, two] = [await world.checkpoint('one'), await world.checkpoint('two')]
  const { trees } = service
  assert.ok(trees)
  machines.trees.disks.set(one.id, { '/workspace/a.txt': 'a\n' }).set(two.id, { '/workspace/a.txt': 'a\n' })
  machines.trees.disks.set(sandbox.id, { '/workspace/a.txt': 'b\nc\n', '/etc/motd': 'hi\n' })
  const compare = (input: Parameters<typeof trees.compare>[2], sandboxId = sandbox.id) =>
    trees.compare(orgId, sandboxId, input)
  return { ...world, one, two, trees, compare }
}

test('disk comparison: checkpoints by id and name, and the present, in whatever state it is and without waking it', async () => {
  const { service, machines, sandbox, orgId, one, two, compare } = await treeWorld()
  const { files, ...rest } = await compare({ from: 'one' })
  assert.deepEqual(rest, { from: one.id, to: null, folder: '/workspace', addedLines: 2, removedLines: 1, isCut: false })
  const a = { path: 'a.txt', change: 'modified', isBinary: false, addedLines: 2, removedLines: 1 }
  assert.deepEqual(files, [a])
  assert.deepEqual((await compare({ from: one.id, to: 'two' })).files, [])
  assert.equal((await compare({ from: one.id, to: two.id })).to, two.id)
  assert.deepEqual((await compare({ from: 'one', folder: '//etc/./' })).folder, '/etc')
  const { activeAt } = await service.get(orgId, sandbox.id)
  await service.hibernate(orgId, sandbox.id)
  assert.deepEqual((await compare({ from: 'one' })).files, [a])
  assert.equal(machines.state(sandbox.id), 'hibernated')
  assert.deepEqual((await service.get(orgId, sandbox.id)).activeAt, activeAt)
})

test('disk comparison: a checkpoint of another sandbox of the tree serves, by SANDBOX/NAME too; one of a strange sandbox does not', async () => {
  const { service, orgId, one, compare } = await treeWorld()
  const { sandbox: fork } = await service.checkpoints.start(orgId, one.id, { name: 'fork' })
  const below = await service.checkpoints.create(orgId, fork.id, { name: 'below', kind: 'disk_only' })
  assert.equal((await compare({ from: below.id })).from, below.id)
  assert.equal((await compare({ from: 'fork/below' })).from, below.id)
  assert.equal((await compare({ from: `${fork.id}/below` })).from, below.id)
  assert.equal((await compare({ from: one.id }, fork.id)).from, one.id)
  await assert.rejects(compare({ from: 'below' }), throwsCode('not_found', /no checkpoint below/))
  const { sandbox: strange } = await service.create(orgId, { name: 'strange' })
  const theirs = await service.checkpoints.create(orgId, strange.id, { name: 'v', kind: 'disk_only' })
  await service.checkpoints.settled(orgId, theirs.id)
  for (const from of [theirs.id, 'strange/v', newId('cp-'), 'no\0name', '\ud800', 'a/b/c', '/'])
    await assert.rejects(compare({ from }), throwsCode('not_found', /no checkpoint/), from)
})

test('disk comparison: a key with a name prefix reaches its part of the tree', async () => {
  const { service, orgId, one, trees } = await treeWorld()
  const { sandbox: fork } = await service.checkpoints.start(orgId, one.id, { name: 'ci-fork' })
  const own = await service.checkpoints.create(orgId, fork.id, { name: 'own', kind: 'disk_only' })
  const reach = { namePrefix: 'ci-', keyId: newId('key_') }
  assert.equal((await trees.compare(orgId, fork.id, { from: own.id, reach })).from, own.id)
  await assert.rejects(trees.compare(orgId, fork.id, { from: one.id, reach }), throwsCode('not_found'))
})

test('disk comparison: what cannot be compared is refused in the order of the disks', async () => {
  const { service, machines, sandbox, orgId, one, two, compare, trees } = await treeWorld()
  const stranger = await makeWorld()
  const of = (from: string) => stranger.service.trees?.compare(stranger.orgId, sandbox.id, { from })
  await assert.rejects(of(one.id) ?? Promise.resolve(), throwsCode('not_found', /no sandbox/))
  const foreign = { checkpointId: one.id }
  await assert.rejects(
    trees.compareDisks(stranger.orgId, foreign, { sandboxId: sandbox.id }, { folder: '/' }),
    throwsCode('not_found', /no checkpoint/),
  )
  for (const folder of ['workspace', '', '/a/../b', '/..', '/a\0', '/\ud800', `/${'x'.repeat(5000)}`])
    await assert.rejects(compare({ from: 'one', folder }), throwsCode('invalid_request', /^folder /), folder)
  assert.equal((await compare({ from: 'one', folder: '/a..b/...' })).folder, '/a..b/...')
  machines.trees.gone.add(two.id)
  await assert.rejects(compare({ from: 'one', to: 'two' }), throwsCode('not_found', /gone/))
  await assert.rejects(compare({ from: 'nothing', to: 'nobody' }), throwsCode('not_found', /nothing/))
  await service.delete(orgId, sandbox.id)
  await assert.rejects(compare({ from: 'one' }), throwsCode('sandbox_stopped'))
  assert.deepEqual((await compare({ from: 'one', to: one.id })).files, [])
  await service.purge(new Date(Date.now() + 60_000), new AbortController().signal)
  assert.deepEqual((await compare({ from: 'one', to: one.id })).files, [])
  await assert.rejects(compare({ from: 'one' }), throwsCode('not_found', /no sandbox/))
})

test('disk comparison: it waits for a checkpoint that is made, and refuses one that has failed', async () => {
  const { service, machines, orgId, sandbox, compare } = await treeWorld()
  const dump = hold(machines, 'checkpoint')
  await service.checkpoints.create(orgId, sandbox.id, { name: 'three', kind: 'disk_only' })
  await dump.begun
  let isDone = false
  const waiting = compare({ from: 'three' }).then(() => (isDone = true))
  await sleep(20)
  assert.equal(isDone, false)
  dump.release()
  await waiting
  machines.before.checkpoint = () => Promise.reject(new Error('no'))
  await service.checkpoints.create(orgId, sandbox.id, { name: 'four', kind: 'disk_only' })
  await assert.rejects(compare({ from: 'four' }), throwsCode('conflict', /has failed/))
})

test('disk comparison: a checkpoint does not expire while it is read', async () => {
  const { service, machines, store, orgId, one, compare, trees, sandbox } = await treeWorld()
  const begun = Promise.withResolvers<void>()
  const held = Promise.withResolvers<void>()
  machines.trees.before = async () => {
    begun.resolve()
    await held.promise
  }
  const comparison = compare({ from: 'one' })
  await begun.promise
  await store.sandboxes.updateCheckpoint(one.id, { expiresAt: new Date(Date.now() - 1) })
  const expire = () => service.deleteExpiredCheckpoints(new AbortController().signal)
  await expire()
  assert.equal((await service.checkpoints.get(orgId, one.id)).checkpoint.id, one.id)
  held.resolve()
  await comparison
  const patch = trees.patch(orgId, sandbox.id, { from: 'one' })
  await patch.next()
  await expire()
  assert.equal((await service.checkpoints.get(orgId, one.id)).checkpoint.id, one.id)
  await patch.return(undefined)
  await expire()
  await assert.rejects(compare({ from: one.id }), throwsCode('not_found'))
})

test('sandbox tree: depth first and by age, from the root, with the bytes that a driver counts', async () => {
  const { service, machines, orgId, sandbox, one, two } = await treeWorld()
  const { sandbox: fork } = await service.checkpoints.start(orgId, one.id, {})
  machines.trees.bytes.set(one.id, 12)
  const { rootId, nodes, isCut } = await service.tree(orgId, fork.id)
  assert.deepEqual([rootId, isCut], [sandbox.id, false])
  const shown = nodes.map((node) => (node.type === 'sandbox' ? node.sandbox.id : node.checkpoint.id))
  assert.deepEqual(shown, [sandbox.id, one.id, fork.id, two.id])
  assert.deepEqual(
    nodes.map(({ uniqueBytes }) => uniqueBytes),
    [undefined, 12, undefined, undefined],
  )
  machines.trees.before = () => Promise.reject(new Error('no'))
  assert.equal((await service.tree(orgId, fork.id)).nodes[1]?.uniqueBytes, undefined)
  await assert.rejects(service.tree(orgId, newId('sb-')), throwsCode('not_found', /no sandbox/))
  await assert.rejects(service.tree(newId('org_'), fork.id), throwsCode('not_found', /no sandbox/))
})
