/** Contexts of builds: what clients send, hostile archives among it, and what is left of it. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { createGzip, gzipSync, zstdCompressSync } from 'node:zlib'
import { Readable } from 'node:stream'
import { createHash } from 'node:crypto'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { extraHeader, paxRecord, tampered, tarEntry, tarOf } from '../support/tar.ts'
import { makeWorld, useWorld } from '../support/world.ts'

const mebibyte = 2 ** 20
const contextBytesMax = 16 * mebibyte
const world = useWorld({ imageLimits: { contextBytesMax, contextsBytesMax: 4096 * mebibyte } })

const digestOf = (content: string | Uint8Array) => `sha256:${createHash('sha256').update(content).digest('hex')}`
const file = (path: string, content: string | Uint8Array = path) => ({
  ...{ path, mode: 0o644, digest: digestOf(content), size: Buffer.byteLength(content) },
})
const archiveOf = (id: string) => `/api/images/contexts/${id}/archive`

async function create(files: object[]): Promise<{ id: string; missing: string[]; uploadUrl: string }> {
  const answer = await world.api.post('/api/images/contexts', { files })
  assert.equal(answer.status, 201, answer.text.slice(0, 500))
  return answer.body
}

async function drafts(): Promise<string[]> {
  return await readdir(join(world.dataDir, 'contexts', world.orgId, 'drafts'))
}

test('context: what is missing is sent with a key or a signed URL, in each compression', async () => {
  const { id, missing, uploadUrl } = await create(['a', 'b', 'c', 'd'].map((name) => file(name, `sent ${name}`)))
  assert.equal(missing.length, 4)
  const entry = (name: string) => tarEntry(`./${name}`, `sent ${name}`)
  const first = await world.api.put(archiveOf(id), tarOf(entry('a')))
  assert.deepEqual([first.status, first.body.missing.length, first.body.ignored], [200, 3, 0])
  const url = new URL(uploadUrl)
  assert.equal(url.origin, world.origin)
  const signed = await world.api.put(url.pathname + url.search, gzipSync(tarOf(entry('b'))), { key: null })
  assert.deepEqual([signed.status, signed.body.missing.length], [200, 2])
  const last = await world.api.put(archiveOf(id), zstdCompressSync(tarOf(entry('d'), tarEntry('x'), entry('c'))))
  assert.deepEqual(last.body, { id, missing: [], ignored: 1 })
  const again = await create(['a', 'b', 'c', 'd'].map((name) => file(name, `sent ${name}`)))
  assert.deepEqual([again.id, again.missing], [id, []])
})

test('context: the Dockerfile that it is for is checked first, and a faulty one keeps nothing', async () => {
  const files = [file('checked')]
  const answerTo = async (image: object) => await world.api.post('/api/images/contexts', { files, image })
  const faults: [object, number, string, RegExp][] = [
    [{ dockerfile: 'FROM base\nCOPY . /srv\nRUM x' }, 400, 'dockerfile', /line 3: .*RUM.*did you mean RUN/],
    [{ dockerfile: 'FROM base AS one', target: 'two' }, 400, 'target', /no stage "two"/],
    [{ dockerfile: 'FROM nobody-knows\nCOPY . /srv' }, 404, 'dockerfile', /no image nobody-knows; there are base/],
    [{ dockerfile: 'FROM $A\nCOPY . /srv', buildArgs: { 'A B': '' } }, 400, 'image.buildArgs', /A B/],
    [{}, 400, 'image.dockerfile', /missing/],
  ]
  const kept = async () => await readdir(join(world.dataDir, 'contexts', world.orgId, 'indexes')).catch(() => [])
  const before = await kept()
  for (const [image, status, field, message] of faults) {
    const answer = await answerTo(image)
    assert.deepEqual([answer.status, answer.body.field], [status, field], answer.text)
    assert.match(answer.body.error, message)
  }
  assert.deepEqual(await kept(), before)
  assert.equal((await answerTo({ dockerfile: 'FROM $A\nCOPY . /srv', buildArgs: { A: 'base' } })).status, 400)
  assert.equal((await answerTo({ dockerfile: 'ARG A\nFROM $A\nCOPY . /', buildArgs: { A: 'base' } })).status, 201)
})

test('context: a signed URL is for one context of one organisation', async () => {
  const { api } = world
  const [one, other] = [await create([file('one')]), await create([file('other')])]
  const { search } = new URL(one.uploadUrl)
  const stranger = search.replace(world.orgId, world.strangerOrgId)
  for (const [path, status] of [
    [`${archiveOf(other.id)}/signed${search}`, 403],
    [`${archiveOf(one.id)}/signed${stranger}`, 403],
    [`${archiveOf(one.id)}/signed`, 403],
    [`${archiveOf(one.id)}/signed${search}`, 200],
  ] as const) {
    assert.equal((await api.put(path, tarOf(), { key: null })).status, status, path)
  }
})

test('context: another organisation learns nothing', async () => {
  const { id } = await create([file('a', 'a secret')])
  await world.api.put(archiveOf(id), tarOf(tarEntry('a', 'a secret')))
  assert.equal((await world.stranger.put(archiveOf(id), tarOf())).status, 404)
  const { body } = await world.stranger.post('/api/images/contexts', { files: [file('a', 'a secret')] })
  assert.deepEqual(body.missing, [digestOf('a secret')])
})

test('context: a wrong file is refused with its field and path', async () => {
  const cases: [object, RegExp, string][] = [
    [{ ...file('a'), path: '../a' }, /^files\.1\.path must not have \.\.: "\.\.\/a"/, 'files.1.path'],
    [{ ...file('a'), digest: 'md5:1' }, /^files\.1\.digest:/, 'files.1.digest'],
    [{ ...file('a'), mode: 0o10000 }, /^files\.1\.mode:/, 'files.1.mode'],
    [{ ...file('a'), size: -1 }, /^files\.1\.size:/, 'files.1.size'],
    [{ ...file('a'), type: 'device' }, /^files\.1\.type:/, 'files.1.type'],
    [{ ...file('a'), sise: 1 }, /^files\.1\.sise: .*did you mean "size"/, 'files.1.sise'],
    [{ ...file('ok'), path: 'ok' }, /^files\.1\.path is given twice: ok/, 'files.1.path'],
  ]
  for (const [wrong, message, field] of cases) {
    const { status, body } = await world.api.post('/api/images/contexts', { files: [file('ok'), wrong] })
    assert.deepEqual([status, body.code, body.field], [400, 'invalid_request', field])
    assert.match(body.error, message)
  }
  assert.equal((await world.api.post('/api/images/contexts', {})).status, 400)
})

test('context: a file that changed while it was sent is refused with its path', async () => {
  const { id } = await create([file('src/changed', 'before')])
  const { status, body } = await world.api.put(archiveOf(id), tarOf(tarEntry('src/changed', 'after!')))
  assert.deepEqual([status, body.code, body.path], [400, 'invalid_request', 'src/changed'])
  assert.match(body.error, /^src\/changed changed while it was sent/)
})

test('context: hostile archives are refused or harmless, and leave nothing', async () => {
  const { id, missing } = await create([file('wanted', 'wanted content')])
  const header = tarEntry('wanted', 'wanted content')
  const bomb = paxRecord('comment', 'x'.repeat(500_000))
  const refused: [string, Buffer][] = [
    ['no archive', Buffer.from('this is no archive at all'.repeat(100))],
    ['empty', Buffer.alloc(0)],
    ['cut in a header', header.subarray(0, 300)],
    ['cut in a file', header.subarray(0, 514)],
    ['a wrong checksum', Buffer.concat([Buffer.from('x'), header.subarray(1), Buffer.alloc(1024)])],
    ['a negative size', tampered(header, [124, Buffer.alloc(12, 0xff)])],
    ['an octal size with a sign', tampered(header, [124, '-0000000001\0'])],
    ['a size that is none', tampered(header, [124, 'zzzzzzzzzzz\0'])],
    ['a size beyond all numbers', tampered(header, [124, Buffer.from([0x80, ...Array<number>(11).fill(0xff)])])],
    ['a pax size that is none', Buffer.concat([extraHeader('x', paxRecord('size', 'many')), header])],
    ['a negative pax size', Buffer.concat([extraHeader('x', paxRecord('size', '-5')), header])],
    ['a pax header too long', Buffer.concat([extraHeader('x', Buffer.alloc(2 * mebibyte, 'a')), header])],
    ['a pax header of 8 GiB', tampered(extraHeader('x', ''), [124, '77777777777\0'])],
    ['many pax headers', Buffer.concat([...Array.from({ length: 5 }, () => extraHeader('x', bomb)), header])],
    [
      'many small pax headers',
      Buffer.concat(Array.from({ length: 3000 }, (_, index) => extraHeader('x', paxRecord(`k${index}`, '')))),
    ],
    [
      'many long names',
      Buffer.concat([...Array.from({ length: 3 }, () => extraHeader('L', Buffer.alloc(500_000, 'a'))), header]),
    ],
    ['a record without its end', Buffer.concat([extraHeader('x', '30 path=a\n'), header])],
    ['a record of no length', Buffer.concat([extraHeader('x', '0 path=a\n'), header])],
    ['a record that is its length', Buffer.concat([extraHeader('x', '99999999999999999999 path=a\n'), header])],
    ['damaged gzip', Buffer.concat([gzipSync(tarOf(header)).subarray(0, 20), Buffer.alloc(100, 0xff)])],
    ['gzip that is cut', gzipSync(tarOf(header)).subarray(0, 30)],
    ['damaged zstd', Buffer.concat([zstdCompressSync(tarOf(header)).subarray(0, 12), Buffer.alloc(100, 0xff)])],
    ['a file of another size', tarOf(tarEntry('wanted', 'wanted content and more'))],
  ]
  for (const [what, archive] of refused) {
    const { status, body, text } = await world.api.put(archiveOf(id), archive)
    assert.deepEqual([status, body?.code], [400, 'invalid_request'], `${what}: ${text}`)
  }
  const device = (type: string, name = 'wanted') => tampered(tarEntry(name), [156, type])
  const ignored: [string, Buffer, number][] = [
    ['a link in the place of a file', tarOf(tarEntry('wanted', '', { type: 'symlink', target: '/etc/passwd' })), 1],
    ['a folder in its place', tarOf(tarEntry('wanted', '', { type: 'directory' })), 1],
    ['devices and pipes', tarOf(device('3'), device('4'), device('6'), device('6', 'pipe')), 4],
    ['a hard link without its target', tarOf(device('1')), 0],
    ['a sparse file', tarOf(tampered(tarEntry('wanted', 'wanted content'), [156, 'S'])), 1],
    [
      'a sparse file of pax',
      tarOf(extraHeader('x', paxRecord('GNU.sparse.size', '14')), tarEntry('wanted', 'wanted content')),
      1,
    ],
    [
      'ways out',
      tarOf(
        tarEntry('../wanted', 'wanted content'),
        tarEntry('/wanted', 'wanted content'),
        tarEntry('a/../wanted', 'wanted content'),
      ),
      3,
    ],
    ['global headers', tarOf(extraHeader('g', paxRecord('path', 'wanted')), tarEntry('other', 'wanted content')), 1],
  ]
  for (const [what, archive, count] of ignored) {
    const { status, body, text } = await world.api.put(archiveOf(id), archive)
    assert.deepEqual([status, body.missing, body.ignored], [200, missing, count], `${what}: ${text}`)
  }
  assert.deepEqual(await drafts(), [])
  const named = tarOf(extraHeader('x', paxRecord('path', 'wanted')), tarEntry('any', 'wanted content'))
  assert.deepEqual((await world.api.put(archiveOf(id), named)).body.missing, [], 'an ordinary one is taken')
})

test('context: an archive that grows without end is refused in a bounded memory', async () => {
  const { id } = await create([file('wanted')])
  const zeros = Buffer.alloc(mebibyte)
  const header = tampered(tarEntry('large'), [124, '77777777777\0'])
  async function* endless(): AsyncGenerator<Buffer> {
    yield header
    for (;;) yield zeros
  }
  const before = process.memoryUsage().rss
  for (const body of [Readable.from(endless()).pipe(createGzip({ level: 1 })), Readable.from(endless())]) {
    const headers = { 'x-api-key': world.api.key, 'transfer-encoding': 'chunked' }
    const call = request(`${world.origin}${archiveOf(id)}`, { method: 'PUT', headers, agent: false })
    call.on('error', () => undefined)
    body.on('error', () => undefined)
    body.pipe(call)
    const [response] = await once(call, 'response')
    assert.equal(response.statusCode, 413)
    body.destroy()
    call.destroy()
  }
  assert.ok(process.memoryUsage().rss - before < 300 * mebibyte)
})

test('context: a client that leaves in the middle leaves no draft, and its next upload goes on', async () => {
  const large = Buffer.alloc(4 * mebibyte, 'large')
  const { id } = await create([file('first', 'first of two'), file('large', large)])
  const archive = tarOf(tarEntry('first', 'first of two'), tarEntry('large', large))
  const headers = { 'x-api-key': world.api.key, 'content-length': String(archive.length) }
  const call = request(`${world.origin}${archiveOf(id)}`, { method: 'PUT', headers, agent: false })
  call.on('error', () => undefined)
  call.write(archive.subarray(0, 2 * mebibyte))
  await eventually(async () => (await drafts().catch(() => [])).length > 0)
  call.destroy()
  await eventually(async () => (await drafts()).length === 0)
  const { missing } = await create([file('first', 'first of two'), file('large', large)])
  assert.deepEqual(missing, [digestOf(large)])
  assert.deepEqual((await world.api.put(archiveOf(id), tarOf(tarEntry('large', large)))).body.missing, [])
})

test('context: a hundred thousand files are listed and sent while others are served', async () => {
  const files = Array.from({ length: 100_000 }, (_, index) => {
    const content = String(index % 1000)
    return { ...file(`src/${index % 317}/folder/${index}.txt`, content), type: 'file', mtime: 1_700_000_000 + index }
  })
  const body = JSON.stringify({ files })
  const before = process.memoryUsage().rss
  const loop = watchLoop()
  const created = await world.api.raw('POST', '/api/images/contexts', { body })
  assert.equal(created.status, 201, created.text.slice(0, 300))
  const { id, missing } = created.body
  assert.equal(missing.length, 1000)
  const createWorst = loop.stop()
  // Every file is in the archive, as with a client that sends all of a folder.
  const archive = tarOf(...files.map(({ path }, index) => tarEntry(path, String(index % 1000))))
  const zipped = gzipSync(archive, { level: 1 })
  const sending = watchLoop()
  const sent = await world.api.raw('PUT', archiveOf(id), { body: zipped })
  assert.deepEqual([sent.status, sent.body.missing, sent.body.ignored], [200, [], 0])
  assert.ok(Math.max(createWorst, sending.stop()) < 500, 'the event loop was held')
  assert.ok(process.memoryUsage().rss - before < 900 * mebibyte)
})

/** The most processor time that this thread has taken in one iteration of the event loop, in ms: a busy machine does not count. */
function watchLoop(): { stop: () => number } {
  let [worst, isOn, last] = [0, true, process.threadCpuUsage()]
  const look = () => {
    const { user, system } = process.threadCpuUsage(last)
    last = process.threadCpuUsage()
    worst = Math.max(worst, (user + system) / 1000)
    if (isOn) setImmediate(look)
  }
  setImmediate(look)
  return {
    stop() {
      isOn = false
      return worst
    },
  }
}

test('context: lists of clients that left do not count any more', async () => {
  await using small = await makeWorld({ limits: { manifestBytesMax: 256 * 1024 } })
  // Two of these are as much as an organisation may have in memory.
  const body = JSON.stringify({ files: [] }) + ' '.repeat(250 * 1024)
  const headers = { 'x-api-key': small.api.key, 'content-length': String(body.length) }
  for (let count = 0; count < 8; count += 1) {
    const call = request(`${small.origin}/api/images/contexts`, { method: 'POST', headers, agent: false })
    call.on('error', () => undefined)
    call.end(body)
    await once(call, 'finish')
    call.destroy()
  }
  await eventually(async () => (await small.api.post('/api/images/contexts', body)).status === 201)
  for (let count = 0; count < 4; count += 1) {
    assert.equal((await small.api.post('/api/images/contexts', body)).status, 201)
  }
})

test('context: more than the limits is refused', async () => {
  const large = await world.api.post('/api/images/contexts', { files: [{ ...file('a'), size: contextBytesMax + 1 }] })
  assert.deepEqual([large.status, large.body.field], [400, 'files'])
  const many = Array.from({ length: 100_001 }, (_, index) => ({ path: String(index), mode: 0, type: 'directory' }))
  const answer = await world.api.post('/api/images/contexts', { files: many })
  assert.deepEqual([answer.status, answer.body.error], [400, 'files must be at most 100000'])
})
