/** A process that is killed in the middle of an upload, and what the next one finds. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { after, test } from 'node:test'
import { tarEntry, tarOf } from '../../../test/support/tar.ts'
import { eventually } from '../../lib/testing/eventually.ts'
import { contextsIn, file } from './testing/kit.ts'

const orgId = 'org_1'
const [role, dir = ''] = process.argv.slice(2)

const contents = Array.from({ length: 200 }, (_, index) =>
  Buffer.alloc(index % 10 === 9 ? 300_000 : 3000, `file ${index} `),
)
const files = contents.map((content, index) => file(`files/${index}`, content))
const archive = tarOf(...contents.map((content, index) => tarEntry(`files/${index}`, content)))

if (role === 'upload') {
  const contexts = contextsIn(dir)
  await contexts.start()
  const { id } = await contexts.create(orgId, files)
  await contexts.upload(orgId, id, process.stdin)
} else {
  const top = await mkdtemp(join(tmpdir(), 'atoll-killed-uploads-'))
  after(() => rm(top, { recursive: true }))

  test('contexts: an upload whose server is killed at any moment leaves whole files and no drafts, and goes on', async () => {
    for (let turn = 1; turn <= 8; turn += 1) {
      const child = spawn(process.execPath, [import.meta.filename, 'upload', top], {
        stdio: ['pipe', 'inherit', 'inherit'],
      })
      const ended = once(child, 'exit')
      child.stdin.on('error', () => undefined)
      const sent = Math.floor((archive.length * turn) / 9)
      child.stdin.write(archive.subarray(0, sent))
      const whole = contents.findLastIndex((_, index) => endOf(index) <= sent - 400_000)
      await eventually(async () => (await namesBelow()).length > Math.max(whole, 0))
      child.kill('SIGKILL')
      assert.deepEqual(await ended, [null, 'SIGKILL'])
    }
    const contexts = contextsIn(top)
    await contexts.start()
    assert.deepEqual(
      (await namesBelow()).filter((name) => name.includes('drafts')),
      [],
    )
    const { id, missing } = await contexts.create(orgId, files)
    assert.ok(missing.length > 0 && missing.length < files.length, `${missing.length} are missing`)
    await assert.rejects(contexts.open(orgId, id), /lacks files/)
    async function* rest(): AsyncGenerator<Uint8Array> {
      yield archive
    }
    assert.deepEqual((await contexts.upload(orgId, id, rest())).missing, [])
    using context = await contexts.open(orgId, id)
    for (const [index, content] of contents.entries()) {
      assert.ok((await buffer(context.read(`/files/${index}`))).equals(content), `files/${index}`)
    }
  })

  async function namesBelow(): Promise<string[]> {
    return await readdir(join(top, orgId), { recursive: true }).then(
      (names) => names.filter((name) => /files\/\w\w\/|drafts\//.test(name)),
      () => [],
    )
  }

  function endOf(last: number): number {
    return contents.slice(0, last + 1).reduce((sum, { length }) => sum + 512 + Math.ceil(length / 512) * 512, 0)
  }
}
