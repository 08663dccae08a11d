import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import type { Preview, PreviewDeclaration } from '../../src/sandbox/preview.ts'
import type { Store } from '../../src/store/index.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { newOrganisation, newSandbox, previewOf, sandboxOf, previewUrl } from './kit.ts'

export function previewTests(store: Store): void {
  const { sandboxes } = store

  suite('previews', () => {
    const at = new Date('2026-06-06T06:06:06.006Z')
    const hostname = () => `${newId('pv-')}.example.com`

    test('preview: a new one is read as it was written, by port and by host name', async () => {
      const sandbox = await newSandbox(store)
      const customHostname = hostname()
      const full = previewOf(sandbox, 3000, {
        customHostname,
        authScheme: 'bearer',
        tokenHash: 'ff',
        sslStatus: 'pending',
      })
      const bare = previewOf(sandbox, 65_535)
      assert.deepEqual(await sandboxes.putPreview(full, previewUrl), { preview: full, created: true })
      assert.deepEqual(await sandboxes.putPreview(bare, previewUrl), { preview: bare, created: true })
      assert.deepEqual(await sandboxes.preview(sandbox.id, 3000), full)
      assert.deepEqual(await sandboxes.previewByHostname(customHostname, sandbox.orgId), full)
      assert.deepEqual(await sandboxes.listPreviews(sandbox.id), [full, bare])
      assert.equal(await sandboxes.preview(sandbox.id, 3001), undefined)
      assert.equal(await sandboxes.preview(newId('sb-'), 3000), undefined)
      assert.equal(await sandboxes.previewByHostname(hostname(), sandbox.orgId), undefined)
      assert.equal(await sandboxes.previewByHostname(customHostname, newId('org_')), undefined)
      assert.equal(await sandboxes.previewByHostname(customHostname), undefined, 'it is not verified')
    })

    test('preview: a verified host name stays verified while the preview has it, and is found without its organisation', async () => {
      const sandbox = await newSandbox(store)
      const customHostname = hostname()
      const declared = previewOf(sandbox, 3000, { customHostname })
      await sandboxes.putPreview(declared, previewUrl)
      assert.equal(await sandboxes.verifyPreview({ ...declared, customHostname: hostname() }, at), false)
      assert.equal(await sandboxes.verifyPreview({ ...declared, port: 3001 }, at), false)
      assert.equal(await sandboxes.verifyPreview(declared, at), true)
      const verified = { ...declared, verifiedAt: at }
      assert.deepEqual(await sandboxes.previewByHostname(customHostname), verified)
      assert.deepEqual(await sandboxes.preview(sandbox.id, 3000), verified)
      assert.deepEqual((await sandboxes.putPreview(declared, previewUrl)).preview, verified)
      const { customHostname: _name, ...unnamed } = declared
      assert.deepEqual((await sandboxes.putPreview(unnamed, previewUrl)).preview, verified, 'what is not named stays')
      for (const other of [hostname(), undefined]) {
        const moved = await sandboxes.putPreview({ ...declared, customHostname: other }, previewUrl)
        assert.equal(moved.preview.verifiedAt, undefined)
        assert.equal(await sandboxes.previewByHostname(customHostname), undefined)
        await sandboxes.putPreview(declared, previewUrl)
        await sandboxes.verifyPreview(declared, at)
      }
    })

    test('preview: several may claim a host name, one is verified, and the next takes it from the named holder', async () => {
      const customHostname = hostname()
      const [one, other, third] = [await newSandbox(store), await newSandbox(store), await newSandbox(store)].map(
        (sandbox) => previewOf(sandbox, 3000, { customHostname, sslStatus: 'active' }),
      ) as [Preview, Preview, Preview]
      for (const claim of [one, other, third]) await sandboxes.putPreview(claim, previewUrl)
      await sandboxes.verifyPreview(one, at)
      await refuses(sandboxes.verifyPreview(other, at), 'conflict', /domain/)
      await refuses(sandboxes.verifyPreview(other, at, third), 'conflict')
      assert.deepEqual(await sandboxes.previewByHostname(customHostname), { ...one, verifiedAt: at })
      assert.equal(await sandboxes.verifyPreview({ ...other, port: 1 }, at, one), false, 'nobody loses it to nobody')
      assert.deepEqual(await sandboxes.previewByHostname(customHostname), { ...one, verifiedAt: at })

      assert.equal(await sandboxes.verifyPreview(other, at, one), true)
      assert.deepEqual(await sandboxes.previewByHostname(customHostname), { ...other, verifiedAt: at })
      assert.deepEqual(await sandboxes.preview(one.sandboxId, 3000), { ...one, sslStatus: 'pending' })
    })

    test('preview: unverified host names are listed, oldest first, without stopped sandboxes', async () => {
      const { id: orgId } = await newOrganisation(store)
      const [running, stopped] = [sandboxOf(orgId), sandboxOf(orgId, { status: 'stopped' })]
      for (const sandbox of [running, stopped]) await sandboxes.insertSandbox(sandbox)
      const waiting = [2, 1, 0].map((day) =>
        previewOf(running, 3000 + day, { customHostname: hostname(), createdAt: new Date(Date.UTC(2026, 0, 1 + day)) }),
      )
      const verified = previewOf(running, 80, { customHostname: hostname() })
      const others = [verified, previewOf(running, 81), previewOf(stopped, 80, { customHostname: hostname() })]
      for (const preview of [...waiting, ...others]) await sandboxes.putPreview(preview, previewUrl)
      await sandboxes.verifyPreview(verified, at)
      assert.deepEqual(await sandboxes.unverifiedPreviews(10, orgId), waiting.toReversed())
      assert.deepEqual(await sandboxes.unverifiedPreviews(2, orgId), waiting.toReversed().slice(0, 2))
      const all = await sandboxes.unverifiedPreviews(10_000)
      for (const preview of waiting) assert.ok(all.some(({ id }) => id === preview.id))
      assert.ok(all.every(({ id }) => others.every((other) => other.id !== id)))
    })

    test('preview: a second declaration of a port changes its fields, clears undefined ones and leaves the rest', async () => {
      const sandbox = await newSandbox(store)
      const guard = { authScheme: 'bearer', tokenHash: 'ff' } as const
      const first = previewOf(sandbox, 3000, { customHostname: hostname(), ...guard })
      await sandboxes.putPreview(first, previewUrl)
      const again = async (change: Partial<PreviewDeclaration>, expected: Preview) => {
        const declared = { ...previewOf(sandbox, 3000, { createdAt: new Date('2026-05-05') }), ...change }
        assert.deepEqual(await sandboxes.putPreview(declared, previewUrl), { preview: expected, created: false })
        assert.deepEqual(await sandboxes.listPreviews(sandbox.id), [expected])
      }
      const { customHostname: _name, ...nameless } = first
      const { authScheme: _scheme, tokenHash: _hash, ...open } = nameless
      await again({}, first)
      await again({ tokenHash: 'ee' }, { ...first, tokenHash: 'ee' })
      await again({ customHostname: undefined, tokenHash: 'ff' }, nameless)
      await again({}, nameless)
      await again({ authScheme: undefined, tokenHash: undefined }, open)
      const other = hostname()
      await again({ customHostname: other }, { ...open, customHostname: other })
      await again(guard, { ...open, customHostname: other, ...guard })
    })

    test('preview: the certificate status stays with its host name and is reset for another', async () => {
      const sandbox = await newSandbox(store)
      const customHostname = hostname()
      const declare = async (change: Partial<PreviewDeclaration>) => {
        const declared = { ...previewOf(sandbox, 3000, { sslStatus: 'pending' }), ...change }
        return (await sandboxes.putPreview(declared, previewUrl)).preview.sslStatus
      }
      const issue = async (name: Pick<Preview, 'customHostname'>) =>
        await sandboxes.setSslStatus({ sandboxId: sandbox.id, port: 3000, ...name }, 'active', ['pending'])
      assert.equal(await declare({}), 'pending')
      assert.equal(await issue({}), true)
      assert.equal(await declare({}), 'active')
      assert.equal(await declare({ customHostname: undefined }), 'active')
      assert.equal(await declare({ customHostname }), 'pending')
      assert.equal(await issue({ customHostname }), true)
      assert.equal(await declare({}), 'active')
      assert.equal(await declare({ customHostname }), 'active')
      assert.equal(await declare({ customHostname: hostname() }), 'pending')
    })

    test('preview: concurrent changes of one port lose nothing', async () => {
      for (let round = 0; round < 20; round++) {
        const sandbox = await newSandbox(store)
        const customHostname = hostname()
        const answers = await Promise.all([
          sandboxes.putPreview(previewOf(sandbox, 3000, { authScheme: 'bearer', tokenHash: 'ff' }), previewUrl),
          sandboxes.putPreview(previewOf(sandbox, 3000, { customHostname }), previewUrl),
        ])
        assert.equal(answers.filter(({ created }) => created).length, 1)
        const preview = await sandboxes.preview(sandbox.id, 3000)
        assert.deepEqual([preview?.customHostname, preview?.tokenHash], [customHostname, 'ff'])
      }
    })

    test('preview: the certificate status changes only for its host name and from the given statuses', async () => {
      const sandbox = await newSandbox(store)
      const customHostname = hostname()
      const named = previewOf(sandbox, 3000, { customHostname, sslStatus: 'pending' })
      const bare = previewOf(sandbox, 3001, { sslStatus: 'pending' })
      await sandboxes.putPreview(named, previewUrl)
      await sandboxes.putPreview(bare, previewUrl)
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

    test('preview: a host name of another preview of the organisation is a conflict, for inserts and updates', async () => {
      const one = await newSandbox(store)
      const other = sandboxOf(one.orgId)
      await sandboxes.insertSandbox(other)
      const customHostname = hostname()
      await sandboxes.putPreview(previewOf(one, 3000, { customHostname }), previewUrl)
      const untouched = previewOf(other, 4000)
      await sandboxes.putPreview(untouched, previewUrl)
      for (const port of [3000, 4000]) {
        await refuses(
          sandboxes.putPreview(previewOf(other, port, { customHostname }), previewUrl),
          'conflict',
          /domain/,
        )
      }
      assert.deepEqual(await sandboxes.listPreviews(other.id), [untouched])
    })

    test('preview: it keeps its own host name, and frees it when it is deleted', async () => {
      const one = await newSandbox(store)
      const other = sandboxOf(one.orgId)
      await sandboxes.insertSandbox(other)
      const customHostname = hostname()
      await sandboxes.putPreview(previewOf(one, 3000, { customHostname }), previewUrl)
      assert.equal((await sandboxes.putPreview(previewOf(one, 3000, { customHostname }), previewUrl)).created, false)
      assert.equal(await sandboxes.deletePreview(one.id, 3000), true)
      assert.equal(await sandboxes.deletePreview(one.id, 3000), false)
      assert.equal((await sandboxes.putPreview(previewOf(other, 80, { customHostname }), previewUrl)).created, true)
    })

    test('preview: an unknown sandbox is not found', async () => {
      const { id } = await newOrganisation(store)
      await refuses(sandboxes.putPreview(previewOf(sandboxOf(id), 3000), previewUrl), 'not_found')
    })
  })
}
