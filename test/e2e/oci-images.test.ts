import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { after, test } from 'node:test'
import { promisify } from 'node:util'
import { HostNames } from '../../src/runtime/host-names.ts'
import { startTestRegistry } from '../support/image-registry.ts'
import { dockerArchiveOf, imageOf, ociArchiveOf, tarOf, type ImageConfig } from '../support/oci-image.ts'
import { AtollServer } from './server.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

// OCI images over the API: from a registry that the operator has named, and from archives. What the runtime makes of them is in
// test/conformance/runc-oci.test.ts.

const work = mkdtempSync(`${tmpdir()}/atoll-oci-e2e-`)
const registry = await startTestRegistry()
after(async () => {
  await registry[Symbol.asyncDispose]()
  await rm(work, { recursive: true, force: true })
})
const source = new URL('../support/probe.c', import.meta.url).pathname
await promisify(execFile)('gcc', ['-static', '-O1', '-o', `${work}/probe`, source])
const probe = { path: 'probe', content: await readFile(`${work}/probe`), mode: 0o755 }
const server = await AtollServer.startForFile({
  env: { ATOLL_REGISTRIES: JSON.stringify({ [registry.host]: { insecure: true } }) },
})

interface Image {
  id: string
  status: string
  oci?: { digest: string; entrypoint: string[]; cmd: string[] }
}

interface Answer<Body> {
  status: number
  body: Body & { code?: string; error?: string; field?: string }
}

async function api<Body>(method: string, path: string, body?: object | Buffer): Promise<Answer<Body>> {
  const sent = body === undefined ? {} : { body: body instanceof Buffer ? new Uint8Array(body) : JSON.stringify(body) }
  const answer = await server.fetch(`/api${path}`, { method, ...sent })
  const text = await answer.text()
  return { status: answer.status, body: (text === '' ? {} : JSON.parse(text)) as Answer<Body>['body'] }
}

async function started(snapshot: string): Promise<string> {
  const { status, body } = await api<{ sandboxID: string }>('POST', '/sandboxes', { snapshot })
  assert.equal(status, 201, JSON.stringify(body))
  return body.sandboxID
}

async function run(id: string, command: object): Promise<{ exitCode: number; stdout: string }> {
  return (await api<{ exitCode: number; stdout: string }>('POST', `/sandboxes/${id}/exec/run`, command)).body
}

const layersOnDisk = () => readdir(`${new HostNames(server.dataDir).poolDir}/layers`)

async function deleteAll(): Promise<void> {
  for (const { sandboxID } of (await api<{ sandboxID: string }[]>('GET', '/sandboxes')).body as { sandboxID: string }[])
    await api('DELETE', `/sandboxes/${sandboxID}`)
  for (const { id } of (await api<Image[]>('GET', '/images')).body as Image[]) await api('DELETE', `/images/${id}`)
  await eventually(async () => (await layersOnDisk()).length === 0, { what: 'no layer is left' })
}

const config: ImageConfig = {
  Env: ['GREETING=good day', 'PATH=/'],
  WorkingDir: '/not/there',
  User: '65532:65532',
  Entrypoint: ['/probe'],
  Cmd: ['serve'],
}

test('an image without libc or shell is fetched once, pinned, and its variables, folder and user are in force', async () => {
  const image = imageOf([tarOf([probe])], { config })
  registry.add('team/scratch:1', image)
  const oci = `${registry.host}/team/scratch:1`
  const made = await api<Image>('POST', '/snapshots', { name: 'scratch', image: { oci } })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  assert.deepEqual(made.body.oci, { digest: image.digest, entrypoint: ['/probe'], cmd: ['serve'] })
  const id = await started('scratch')
  const said = await run(id, { cmd: 'probe', args: [] })
  assert.deepEqual([said.exitCode, said.stdout], [0, '65532:65532 65532 /not/there good day\n'])
  const asRoot = await run(id, { cmd: '/probe', args: [], user: 'root', cwd: '/', envs: { GREETING: 'other' } })
  assert.match(asRoot.stdout, /^0:0 \d \/ other$/m)
  const asked = registry.requests.length
  const again = await api<Image>('POST', '/snapshots', { name: 'again', image: { oci } })
  assert.deepEqual([again.status, again.body.oci], [201, made.body.oci])
  const file = Buffer.from('added').toString('base64')
  const steps = [
    { type: 'workdir', args: { path: '/opt/more' } },
    { type: 'add_file', args: { path: '/opt/more/file', content: file } },
  ]
  const extended = await api<Image>('POST', '/snapshots', { name: 'extended', image: { oci, steps } })
  assert.deepEqual([extended.status, extended.body.oci?.digest], [201, image.digest])
  const program = new URL('../../bin/atoll', import.meta.url).pathname
  const env = { PATH: process.env['PATH'], HOME: work, ATOLL_URL: server.url, ATOLL_API_KEY: server.key }
  const added = await promisify(execFile)(program, ['image', 'add', oci, '--json'], { env })
  assert.equal((JSON.parse(added.stdout) as { name: string }).name, 'scratch-1')
  assert.equal(registry.requests.length, asked, 'nothing was fetched again')
  const other = await started('extended')
  assert.equal(await (await server.fetch(`/api/sandboxes/${other}/files?path=/opt/more/file`)).text(), 'added')
  assert.equal((await run(other, { cmd: 'probe', args: [] })).stdout, '65532:65532 65532 /opt/more good day\n')
  await deleteAll()
})

test('an archive becomes an image, and a second one of its layers shares them', async () => {
  const layer = tarOf([probe])
  const docker = dockerArchiveOf(imageOf([layer], { config: { Env: ['A=b'] } }))
  const made = await api<Image>('PUT', '/images/docker/archive', docker)
  assert.equal(made.status, 201, JSON.stringify(made.body))
  const oci = ociArchiveOf(imageOf([layer, tarOf([{ path: 'more', content: 'x' }])]))
  assert.equal((await api('PUT', '/images/oci/archive', oci)).status, 201)
  assert.equal((await layersOnDisk()).length, 2)
  assert.equal((await run(await started('oci'), { cmd: '/probe', args: [] })).exitCode, 0)
  const taken = await api('PUT', '/images/oci/archive', oci)
  assert.deepEqual([taken.status, taken.body.code], [409, 'conflict'])
  await deleteAll()
})

test('a signed URL takes one archive without a key, as long as it may be', async () => {
  const archive = ociArchiveOf(imageOf([tarOf([probe])]))
  const put = async (url: string, body: Uint8Array<ArrayBuffer>) => {
    const answer = await fetch(url, { method: 'PUT', body })
    const { status = '', code = '' } = (await answer.json()) as { status?: string; code?: string }
    return [answer.status, status, code]
  }
  const signed = async (bounds: object) => {
    const { status, body } = await api<{ url: string }>('POST', '/images/signed/archive-url', bounds)
    assert.equal(status, 200, JSON.stringify(body))
    return body.url
  }
  const bytes = new Uint8Array(archive)
  assert.deepEqual(await put(await signed({ maxBytes: bytes.length - 1 }), bytes), [413, '', 'too_large'])
  assert.deepEqual(
    (await api<Image[]>('GET', '/snapshots')).body.map(({ status }) => status),
    ['failed'],
  )
  const url = await signed({ maxBytes: bytes.length })
  assert.deepEqual(await put(url, bytes), [201, 'ready', ''])
  assert.equal((await run(await started('signed'), { cmd: '/probe', args: [] })).exitCode, 0)
  assert.deepEqual(await put(url, bytes), [409, '', 'conflict'])
  await deleteAll()
})

test('what is wrong with a reference or an archive is told with its field, and leaves nothing', async () => {
  const cases: [reference: string, status: number][] = [
    ['docker.io/library/alpine', 400],
    ['alpine', 400],
    ['127.0.0.1:1/x', 400],
    [`${registry.host}/../x`, 400],
    [`${registry.host}/team/unknown:1`, 400],
  ]
  for (const [oci, status] of cases) {
    const { body, ...answer } = await api('POST', '/sandboxes', { image: { oci } })
    assert.deepEqual([answer.status, body.field], [status, 'image.oci'], JSON.stringify(body))
  }
  const both = await api('POST', '/sandboxes', { image: { oci: `${registry.host}/x`, base: 'base' } })
  assert.deepEqual([both.status, both.body.field], [400, 'image.oci'])
  const broken = await api('PUT', '/images/broken/archive', Buffer.from('no archive'))
  assert.deepEqual([broken.status, broken.body.code], [400, 'invalid_request'])
  const unfinished = ociArchiveOf(imageOf([tarOf([probe])])).subarray(0, 2000)
  assert.equal((await api('PUT', '/images/cut-off/archive', Buffer.from(unfinished))).status, 400)
  await deleteAll()
})
