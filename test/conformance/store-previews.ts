import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import type { OpenedStore } from './store.ts'
import { newOrganisation, previewOf, sandboxOf } from './store-records.ts'

export function previewTests(store: OpenedStore): void {
  suite('previews', () => {
    const newSandbox = async () => {
      const sandbox = sandboxOf((await newOrganisation(store())).id)
      await store().sandboxes.insertSandbox(sandbox)
      return sandbox
    }
    const hostname = () => `${newId('pv-')}.example.com`

    test('a new preview is read as it was written, by port and by host name', async () => {
      const sandbox = await newSandbox()
      const customHostname = hostname()
      const full = previewOf(sandbox, 3000, {
        customHostname,
        authScheme: 'bearer',
        tokenHash: 'ff',
        sslStatus: 'pending',
      })
      const bare = previewOf(sandbox, 65_535)
      assert.deepEqual(await store().sandboxes.putPreview(full), { preview: full, created: true })
      assert.deepEqual(await store().sandboxes.putPreview(bare), { preview: bare, created: true })
      assert.deepEqual(await store().sandboxes.preview(sandbox.id, 3000), full)
      assert.deepEqual(await store().sandboxes.previewByHostname(customHostname), full)
      assert.deepEqual(await store().sandboxes.listPreviews(sandbox.id), [full, bare])
      assert.equal(await store().sandboxes.preview(sandbox.id, 3001), undefined)
      assert.equal(await store().sandboxes.preview(newId('sb-'), 3000), undefined)
      assert.equal(await store().sandboxes.previewByHostname(hostname()), undefined)
    })

    test('the same port again replaces all but id and creation time', async () => {
      const sandbox = await newSandbox()
      const first = previewOf(sandbox, 3000, { customHostname: hostname(), authScheme: 'bearer', tokenHash: 'ff' })
      await store().sandboxes.putPreview(first)
      const second = previewOf(sandbox, 3000, { sslStatus: 'active', createdAt: new Date('2026-05-05') })
      const expected = { ...second, id: first.id, createdAt: first.createdAt }
      assert.deepEqual(await store().sandboxes.putPreview(second), { preview: expected, created: false })
      assert.deepEqual(await store().sandboxes.putPreview(expected), { preview: expected, created: false })
      assert.deepEqual(await store().sandboxes.listPreviews(sandbox.id), [expected])
    })

    test('the status of a certificate changes only for the host name and from the statuses it was told for', async () => {
      const sandbox = await newSandbox()
      const customHostname = hostname()
      const named = previewOf(sandbox, 3000, { customHostname, sslStatus: 'pending' })
      const bare = previewOf(sandbox, 3001, { sslStatus: 'pending' })
      const { sandboxes } = store()
      await sandboxes.putPreview(named)
      await sandboxes.putPreview(bare)
      const { customHostname: _name, ...nameless } = named
      assert.equal(await sandboxes.setSslStatus(nameless, 'active', ['pending']), false)
      assert.equal(await sandboxes.setSslStatus({ ...named, customHostname: hostname() }, 'active', ['pending']), false)
      assert.equal(await sandboxes.setSslStatus({ ...named, port: 3002 }, 'active', ['pending']), false)
      assert.equal(await sandboxes.setSslStatus(named, 'active', ['failed']), false)
      assert.equal(await sandboxes.setSslStatus(named, 'failed', ['pending', 'disabled']), true)
      assert.equal(await sandboxes.setSslStatus(bare, 'active', ['pending']), true)
      const expected = [
        { ...named, sslStatus: 'failed' },
        { ...bare, sslStatus: 'active' },
      ]
      assert.deepEqual(await sandboxes.listPreviews(sandbox.id), expected)
      assert.deepEqual(await sandboxes.preview(sandbox.id, 3001), expected[1])
    })

    test('a host name of another preview is a conflict, for a new preview and for an update', async () => {
      const [one, other] = [await newSandbox(), await newSandbox()]
      const customHostname = hostname()
      await store().sandboxes.putPreview(previewOf(one, 3000, { customHostname }))
      const untouched = previewOf(other, 4000)
      await store().sandboxes.putPreview(untouched)
      for (const port of [3000, 4000]) {
        await assert.rejects(
          store().sandboxes.putPreview(previewOf(other, port, { customHostname })),
          (error) => isServiceError(error, 'conflict') && error.message.includes('domain'),
        )
      }
      assert.deepEqual(await store().sandboxes.listPreviews(other.id), [untouched])
    })

    test('a preview keeps its own host name, and gives it free when it goes', async () => {
      const [one, other] = [await newSandbox(), await newSandbox()]
      const customHostname = hostname()
      await store().sandboxes.putPreview(previewOf(one, 3000, { customHostname }))
      assert.equal((await store().sandboxes.putPreview(previewOf(one, 3000, { customHostname }))).created, false)
      assert.equal(await store().sandboxes.deletePreview(one.id, 3000), true)
      assert.equal(await store().sandboxes.deletePreview(one.id, 3000), false)
      assert.equal((await store().sandboxes.putPreview(previewOf(other, 80, { customHostname }))).created, true)
    })

    test('a preview of an unknown sandbox is not found', async () => {
      const { id } = await newOrganisation(store())
      await assert.rejects(store().sandboxes.putPreview(previewOf(sandboxOf(id), 3000)), (error) =>
        isServiceError(error, 'not_found'),
      )
    })
  })
}
