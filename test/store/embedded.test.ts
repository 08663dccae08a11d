/** Behaviour of the embedded database alone: it runs beside the server's event loop, and it can die alone. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { appendFile, cp, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, suite, test } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { openStore } from '../../src/store/index.ts'
import { imageDir } from '../support/images.ts'
import { startChild } from './child.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { messageOf, newOrganisation, newSession } from './kit.ts'

suite('the embedded database', () => {
  let dataDir: string
  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'atoll-embedded-'))
  })
  afterEach(() => rm(dataDir, { recursive: true, force: true }))

  test('embedded database: a search through long histories does not block the event loop', async () => {
    const store = await openStore({ dataDir, imageDir })
    const { id: orgId } = await newOrganisation(store)
    const { id: sessionId } = await newSession(store, orgId)
    const content = 'x'.repeat(1024 * 1024)
    for (let count = 0; count < 16; count++) {
      await store.sessions.commit(sessionId, { addMessages: [messageOf(content)] })
    }
    let isSearching = true
    let turns = 0
    const count = () => {
      turns++
      if (isSearching) setImmediate(count)
    }
    setImmediate(count)
    const { items } = await store.sessions.listSessions({ orgId, limit: 20, search: 'nowhere' })
    isSearching = false
    await store.close()
    assert.deepEqual(items, [])
    assert.ok(turns > 1000, `the event loop went round ${turns} times`)
  })

  test("embedded database: a new one is a copy of setup's empty database of the same version", async () => {
    const images = join(dataDir, 'images')
    await cp(await realpath(join(imageDir, 'database')), join(images, 'database'), { recursive: true })
    await writeFile(join(images, 'database/db/copied'), '')
    for (const [name, change] of [
      ['same', ''],
      ['other', '.1'],
    ] as const) {
      await appendFile(join(images, 'database/recipe'), change)
      await (await openStore({ dataDir: join(dataDir, name), imageDir: images })).close()
    }
    const copied = ['same', 'other'].map((name) => existsSync(join(dataDir, name, 'db/copied')))
    assert.deepEqual(copied, [true, false])
  })

  test('embedded database: a panic of PostgreSQL is reported with its reason and rejects all calls', async () => {
    const deaths: Error[] = []
    const store = await openStore({ dataDir, imageDir }, { died: (error) => deaths.push(error) })
    const { id: orgId } = await newOrganisation(store)
    const { id: sessionId } = await newSession(store, orgId)
    // PostgreSQL panics when it cannot go on with its log, as on a full disk.
    await rm(join(dataDir, 'db', 'pg_wal'), { recursive: true })
    let writes = 0
    const write = async () => {
      while (writes++ < 500) {
        // What PostgreSQL cannot compress, so that its log grows beyond the files that are open.
        const content = randomBytes(256 * 1024).toString('hex')
        await store.sessions.commit(sessionId, { addMessages: [messageOf(content)] })
      }
    }
    const results = await Promise.allSettled([write(), write(), write()])
    for (const result of results) {
      assert.equal(result.status, 'rejected')
      assert.ok(isServiceError(result.reason, 'unavailable'), String(result.reason))
    }
    await refuses(store.ping(), 'unavailable')
    await store.close()
    assert.equal(deaths.length, 1)
    assert.match(String(deaths[0]), /could not create file "pg_wal/)
  })

  test('embedded database: an open store keeps the process alive only for its calls', async () => {
    const output = await startChild('query', dataDir, imageDir).stdout.toArray()
    assert.equal(Buffer.concat(output).toString(), 'opened\nanswered\n')
  })
})
