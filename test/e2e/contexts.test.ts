/** A server that is killed while it is sent the files of a build. */
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { tarEntry, tarOf } from '../support/tar.ts'
import { AtollServer } from './server.ts'

interface State {
  id: string
  missing: string[]
}

test('context: a server that is killed in an upload keeps whole files, forgets drafts, and takes the rest', async () => {
  await using server = await AtollServer.start()
  const contents = [randomBytes(5000), randomBytes(30_000_000), randomBytes(10)]
  const files = contents.map((content, index) => {
    const digest = `sha256:${createHash('sha256').update(content).digest('hex')}`
    return { path: `file-${index}`, mode: 0o644, digest, size: content.length }
  })
  const archive = tarOf(...contents.map((content, index) => tarEntry(`file-${index}`, content)))
  const create = async () => (await server.json('POST', '/api/images/contexts', { files })) as State
  const { id } = await create()
  const path = `/api/images/contexts/${id}/archive`
  const headers = { 'x-api-key': server.key, 'content-length': String(archive.length) }
  const call = request(server.url + path, { method: 'PUT', headers }).on('error', () => undefined)
  call.write(archive.subarray(0, 20_000_000))
  const [orgId = ''] = await readdir(join(server.dataDir, 'contexts'))
  const below = (name: string) => readdir(join(server.dataDir, 'contexts', orgId, name), { recursive: true })
  const stored = async () => (await below('files').catch(() => [])).filter((name) => name.length > 64)
  await eventually(async () => (await stored()).length > 0 && (await below('drafts')).length > 0)
  await server.kill()
  call.destroy()
  await server.restart()
  await assert.rejects(below('drafts'), { code: 'ENOENT' })
  assert.deepEqual((await create()).missing.toSorted(), [files[1]!.digest, files[2]!.digest].toSorted())
  const rest = await server.fetch(path, { method: 'PUT', body: archive })
  assert.deepEqual(await rest.json(), { id, ignored: 0, missing: [] })
  assert.equal((await stored()).length, 3)
})
