import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import type { Checkpoint } from '../../src/sandbox/checkpoint-records.ts'
import type { TreeQuery } from '../../src/sandbox/ports/sandbox-store.ts'
import type { Sandbox } from '../../src/sandbox/sandbox.ts'
import type { Store } from '../../src/store/index.ts'
import { checkpointOf, newOrganisation, newSandbox, newSession, sandboxOf } from './kit.ts'

export function sandboxTreeTests(store: Store): void {
  const { sandboxes } = store

  const checkpointed = async (sandbox: Sandbox, fields: Partial<Checkpoint> = {}) => {
    const checkpoint = checkpointOf(sandbox, fields)
    await sandboxes.insertCheckpoint(checkpoint)
    return checkpoint
  }
  const started = async ({ id, orgId }: Pick<Checkpoint, 'id' | 'orgId'>, fields: Partial<Sandbox> = {}) => {
    const sandbox = sandboxOf(orgId, { fromCheckpointId: id, ...fields })
    await sandboxes.insertSandbox(sandbox)
    return sandbox
  }
  /** Each node behind its parent. */
  const edges = async (sandboxId: string, query: TreeQuery, limit = 1000) => {
    const { nodes, isCut } = await sandboxes.sandboxTree(sandboxId, { ...query, limit })
    const found = nodes.map((node) => {
      const id = node.type === 'sandbox' ? node.sandbox.id : node.checkpoint.id
      return `${node.parentId ?? '-'} ${id}`
    })
    return { found, isCut }
  }
  /** A sandbox, its checkpoint, a fork of that, the checkpoint of the fork, and a fork of that. */
  const chain = async () => {
    const root = await newSandbox(store)
    const first = await checkpointed(root)
    const fork = await started(first)
    const second = await checkpointed(fork)
    const last = await started(second)
    return { root, first, fork, second, last, query: { orgId: root.orgId } }
  }

  suite('sandbox trees', () => {
    test('sandbox tree: from every sandbox in it the whole is found, parents before children', async () => {
      const { root, first, fork, second, last, query } = await chain()
      const other = await checkpointed(root)
      const path = [
        `- ${root.id}`,
        `${root.id} ${first.id}`,
        `${first.id} ${fork.id}`,
        `${fork.id} ${second.id}`,
        `${second.id} ${last.id}`,
      ]
      const all = [...path, `${root.id} ${other.id}`].toSorted()
      for (const { id } of [root, fork, last]) {
        const { found, isCut } = await edges(id, query)
        assert.deepEqual([found.toSorted(), isCut], [all, false])
        const ids = found.map((edge) => edge.split(' ')[1])
        for (const edge of found) {
          const [parent, id_] = edge.split(' ')
          assert.ok(parent === '-' || ids.indexOf(parent) < ids.indexOf(id_))
        }
        assert.equal(await sandboxes.treeRoot(id, query), root.id)
      }
    })

    test('sandbox tree: a node says what it is, and which session has it', async () => {
      const { root, first, query } = await chain()
      const session = await newSession(store, root.orgId, { sandboxId: root.id })
      const turn = await checkpointed(root, { owner: 'turn', status: 'failed', error: 'why', sizeBytes: 7 })
      const { nodes } = await sandboxes.sandboxTree(root.id, { ...query, limit: 1000 })
      const { id, status, createdAt } = root
      assert.deepEqual(nodes[0], {
        type: 'sandbox',
        parentId: null,
        sandbox: { id, status, createdAt },
        sessionId: session.id,
      })
      const found = nodes.flatMap((node) => (node.type === 'checkpoint' ? [node] : []))
      const { sandboxId: _source, orgId: _org, sandboxConfig: _config, volumes: _volumes, ...shown } = turn
      assert.deepEqual(
        found.find(({ checkpoint }) => checkpoint.id === turn.id),
        { type: 'checkpoint', parentId: id, checkpoint: shown, sessionId: session.id },
      )
      assert.equal(found.find(({ checkpoint }) => checkpoint.id === first.id)?.sessionId, undefined)
    })

    test('sandbox tree: what is above a deleted checkpoint or a purged sandbox is another tree, or has no parent', async () => {
      const { root, first, fork, second, last, query } = await chain()
      await sandboxes.deleteCheckpoint(second.id)
      assert.deepEqual((await edges(last.id, query)).found, [`- ${last.id}`])
      await sandboxes.updateSandbox(root.id, { status: 'stopped', stoppedAt: new Date(0) })
      await sandboxes.purgeSandboxes([root.id])
      const sibling = await checkpointed(root)
      const expected = [`- ${first.id}`, `- ${sibling.id}`, `${first.id} ${fork.id}`].toSorted()
      for (const id of [root.id, fork.id]) assert.deepEqual((await edges(id, query)).found.toSorted(), expected)
      assert.equal(await sandboxes.treeRoot(fork.id, query), root.id)
      assert.deepEqual((await edges(newId('sb-'), query)).found, [])
    })

    test('sandbox tree: images and other organisations are no part of it', async () => {
      const { root, first, fork, query } = await chain()
      const stranger = await newOrganisation(store)
      const theirs = await started({ id: first.id, orgId: stranger.id })
      const image = await checkpointed(root, { owner: 'image' })
      const ofImage = await started(image)
      const { found } = await edges(fork.id, query)
      assert.ok(!found.some((edge) => [theirs.id, image.id, ofImage.id].some((id) => edge.includes(id))))
      assert.deepEqual((await edges(ofImage.id, query)).found, [`- ${ofImage.id}`])
      assert.deepEqual((await edges(theirs.id, { orgId: stranger.id })).found, [`- ${theirs.id}`])
      assert.deepEqual((await edges(root.id, { orgId: stranger.id })).found, [])
    })

    test('sandbox tree: a key with a name prefix sees its own part, which leads no further', async () => {
      const { orgId } = await newSandbox(store)
      const hidden = sandboxOf(orgId, { name: 'web-1' })
      await sandboxes.insertSandbox(hidden)
      const top = await started(await checkpointed(hidden), { name: 'ci-1' })
      const own = await checkpointed(top)
      const below = await started(own, { name: 'ci-2' })
      const hiddenBelow = await started(own, { name: 'web-2' })
      await started(await checkpointed(hiddenBelow), { name: 'ci-3' })
      const query = { orgId, reach: { namePrefix: 'ci-', keyId: newId('key_') } }
      const expected = [`- ${top.id}`, `${top.id} ${own.id}`, `${own.id} ${below.id}`]
      assert.deepEqual((await edges(below.id, query)).found, expected)
      assert.deepEqual((await edges(hidden.id, query)).found, [])
      assert.equal(await sandboxes.treeRoot(hidden.id, query), undefined)
      assert.equal(await sandboxes.treeRoot(below.id, query), top.id)
    })

    test('sandbox tree: a large one is cut, and has the ancestors of what was asked for', async () => {
      const { root, first, fork, second, last, query } = await chain()
      for (let count = 0; count < 10; count++) await checkpointed(root)
      const { found, isCut } = await edges(last.id, query, 7)
      assert.equal(isCut, true)
      const path = [root.id, first.id, fork.id, second.id, last.id]
      assert.deepEqual([found.length, found.slice(0, 5).map((edge) => edge.split(' ')[1])], [7, path])
      const near = await edges(last.id, query, 3)
      assert.deepEqual(near, {
        found: [`- ${fork.id}`, `${fork.id} ${second.id}`, `${second.id} ${last.id}`],
        isCut: true,
      })
      const whole = await edges(last.id, query, 15)
      assert.deepEqual([whole.found.length, whole.isCut], [15, false])
    })

    test('sandbox tree: rows that lead around in a circle make a tree all the same', async () => {
      const { root, second, query } = await chain()
      await sandboxes.updateSandbox(root.id, { fromCheckpointId: second.id })
      const { nodes } = await sandboxes.sandboxTree(root.id, { ...query, limit: 1000 })
      assert.equal(nodes.length, 5)
      assert.equal(nodes.filter(({ parentId }) => parentId === null).length, 1)
    })
  })
}
