/** The session service over the real store: the crash story of `src/session`, and the fields that only a database checks. */
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { surviveCrash } from '../../src/session/testing/crash.ts'
import { assertWhole, orgId, simple, World } from '../../src/session/testing/world.ts'
import { openStore, type Store } from '../../src/store/index.ts'
import { imageDir } from '../support/images.ts'

/** Every call would be the same story as over the store in memory; every third takes seconds less. */
const step = 3

let dataDir: string
let store: Store

before(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'atoll-sessions-'))
  store = await openStore({ dataDir, imageDir })
  await store.organisations.insertOrganisation({ id: orgId, name: 'test' })
})

after(async () => {
  await store.close()
  await rm(dataDir, { recursive: true })
})

test('a session and its fields come back from the database as they were', async () => {
  const world = new World(store.sessions)
  const service = world.serve()
  const { session } = await service.create(orgId, {
    ...simple,
    userEmail: 'u@example.com',
    userName: 'U',
    agentConfig: { skills: { 'a/SKILL.md': 'text' }, allowedTools: ['bash'], maxTurns: 5, maxTokens: 1000 },
  })
  await world.until(session.id, 'idle')
  await assertWhole(world, session.id)
  const view = await service.get(orgId, session.id)
  const { skills, ...config } = session.agentConfig
  assert.deepEqual(view.session.agentConfig, { ...config, skills: {} })
  assert.deepEqual(await store.sessions.skills(session.id), skills)
  assert.equal(view.session.userEmail, 'u@example.com')
  assert.deepEqual(view.session.artifacts, [{ path: '/workspace/app/a page.html', summary: 'a page' }])
  await service.delete(orgId, session.id)
  await world.close()
})

test('over the real store, too, a server may die at its calls', async () => {
  for (const mode of ['before', 'after'] as const) {
    let at = 1
    while (await surviveCrash(store.sessions, at, mode)) at += step
    assert.ok(at > 30, `only ${at} calls`)
  }
})
