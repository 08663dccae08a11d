import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import type { Store } from '../../src/store/index.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import {
  checkpointOf,
  eventOf,
  messageOf,
  newOrganisation,
  newSession,
  patchOf,
  previewOf,
  sandboxOf,
  sessionOf,
  previewUrl,
} from './kit.ts'

const nul = 'a\0b'
const lone = 'a\ud800b\udc00'
const whole = 'a\ufffdb\ufffd'
/** Looks like escapes, is none; and characters beyond the basic plane. */
const harmless = String.raw`\u0000 \\u0000 \ud800 😀 é "quoted"`

export function textTests(store: Store): void {
  const { sandboxes, sessions, organisations, idempotency } = store

  suite('text that PostgreSQL does not take', () => {
    const refused = (call: Promise<unknown>, field: string) => refuses(call, 'invalid_request', /NUL/, field)

    test('NUL: it is refused in every field of a sandbox, also by an update', async () => {
      const { id: orgId } = await newOrganisation(store)
      await refused(sandboxes.insertSandbox(sandboxOf(orgId, { envs: { A: nul } })), 'envs')
      await refused(sandboxes.insertSandbox(sandboxOf(orgId, { metadata: { [nul]: '' } })), 'metadata')
      await refused(sandboxes.insertSandbox(sandboxOf(orgId, { tags: { a: nul } })), 'tags')
      await refused(sandboxes.insertSandbox(sandboxOf(orgId, { image: nul })), 'image')
      await refused(sandboxes.insertSandbox(sandboxOf(orgId, { fromCheckpointId: nul })), 'fromCheckpointId')
      const sandbox = sandboxOf(orgId)
      await sandboxes.insertSandbox(sandbox)
      await refused(sandboxes.updateSandbox(sandbox.id, { tags: { a: nul } }), 'tags')
      await refused(sandboxes.updateSandbox(sandbox.id, { image: nul }), 'image')
      assert.deepEqual(await sandboxes.sandbox(sandbox.id), sandbox)
    })

    test('NUL: it is refused in checkpoints, patches, previews, sessions and keys', async () => {
      const { id: orgId } = await newOrganisation(store)
      const sandbox = sandboxOf(orgId)
      await sandboxes.insertSandbox(sandbox)
      const checkpoint = checkpointOf(sandbox)
      await sandboxes.insertCheckpoint(checkpoint)
      await refused(sandboxes.insertCheckpoint(checkpointOf(sandbox, { name: nul })), 'name')
      await refused(sandboxes.insertPatch(patchOf(checkpoint.id, nul)), 'script')
      await refused(sandboxes.insertPatch({ ...patchOf(checkpoint.id), description: nul }), 'description')
      await refused(sandboxes.putPreview(previewOf(sandbox, 80, { customHostname: nul }), previewUrl), 'domain')
      for (const fields of [{ userId: nul }, { userEmail: nul }, { userName: nul }, { title: nul }]) {
        await refused(newSession(store, orgId, fields), Object.keys(fields).join())
      }
      const agentConfig = { ...sessionOf(orgId).agentConfig, skills: { '/a': nul } }
      await refused(newSession(store, orgId, { agentConfig }), 'skills')
      await refused(sessions.createSession(sessionOf(orgId), [messageOf(nul)], eventOf('')), 'prompt')
      const session = await newSession(store, orgId)
      await refused(sessions.commit(session.id, { addMessages: [messageOf(nul)] }), 'message')
      await refused(idempotency.begin({ orgId, key: nul, seed: '' }, 'hash', new Date()), 'key')
      await refused(organisations.insertOrganisation({ id: orgId, name: nul }), 'name')
    })

    test('NUL: a lookup by an id with NUL is an invalid request', async () => {
      await refused(sandboxes.sandbox('sb-\0'), 'id')
      await refused(sessions.session('session_\0'), 'id')
      await refused(sandboxes.previewByHostname('\0'), 'host')
    })

    test('text of an agent: NUL and lone surrogates become replacement characters', async () => {
      const session = await newSession(store, (await newOrganisation(store)).id)
      const dirty = nul + lone + harmless
      const clean = 'a\ufffdb' + whole + harmless
      const committed = await sessions.commit(session.id, {
        session: { title: dirty, framework: dirty, artifacts: [{ path: dirty, summary: dirty }] },
        addMessages: [messageOf(dirty, { role: 'assistant' }), messageOf(dirty, { role: 'system' })],
        addEvents: [eventOf(dirty)],
        addStream: [{ type: 'assistant', [dirty]: { text: [dirty] } }],
      })
      assert.ok(committed)
      assert.deepEqual((await sessions.session(session.id))?.artifacts, [{ path: clean, summary: clean }])
      assert.deepEqual([committed.session.title, committed.session.framework], [clean, clean])
      const [said] = await sessions.stream(session.id, 0, 1)
      assert.deepEqual(said?.data, { type: 'assistant', [clean]: { text: [clean] } })
      const contents = (await sessions.messages(session.id)).map(({ content }) => content)
      assert.deepEqual(contents.slice(1), [clean, clean])
      assert.equal((await sessions.events(session.id))[1]?.message, clean)
    })

    test('text of a sandbox: NUL in its reasons becomes a replacement character', async () => {
      const sandbox = sandboxOf((await newOrganisation(store)).id, { reasonMessage: nul })
      await sandboxes.insertSandbox(sandbox)
      assert.equal((await sandboxes.sandbox(sandbox.id))?.reasonMessage, 'a\ufffdb')
      const updated = await sandboxes.updateSandbox(sandbox.id, { reasonMessage: `${nul}${lone}` })
      assert.equal(updated?.reasonMessage, `a\ufffdb${whole}`)
      const checkpoint = checkpointOf(sandbox, { error: nul })
      await sandboxes.insertCheckpoint(checkpoint)
      assert.equal((await sandboxes.checkpoint(checkpoint.id))?.error, 'a\ufffdb')
      assert.equal((await sandboxes.updateCheckpoint(checkpoint.id, { error: lone }))?.error, whole)
    })

    test('text of a client: lone surrogates become replacement characters, and other text stays', async () => {
      const { id: orgId } = await newOrganisation(store)
      const sandbox = sandboxOf(orgId, { envs: { [lone]: lone, ok: harmless }, metadata: { a: lone } })
      await sandboxes.insertSandbox(sandbox)
      const read = await sandboxes.sandbox(sandbox.id)
      assert.deepEqual(read?.envs, { [whole]: whole, ok: harmless })
      assert.deepEqual(read?.metadata, { a: whole })
      const checkpoint = checkpointOf(sandbox, {
        name: lone,
        sandboxConfig: { ...checkpointOf(sandbox).sandboxConfig, envs: {} },
      })
      await sandboxes.insertCheckpoint(checkpoint)
      assert.equal((await sandboxes.insertPatch(patchOf(checkpoint.id, lone + harmless))).script, whole + harmless)
      const session = sessionOf(orgId, { userId: lone })
      await sessions.createSession(session, [messageOf(lone + harmless)], eventOf('x'))
      assert.equal((await sessions.messages(session.id))[0]?.content, whole + harmless)
    })

    test('number: one that no column holds is refused', async () => {
      const { id: orgId } = await newOrganisation(store)
      await refuses(sandboxes.insertSandbox(sandboxOf(orgId, { memoryMb: 2 ** 40 })), 'invalid_request')
    })
  })
}
