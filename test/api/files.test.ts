import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { type IncomingMessage, request as httpRequest } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { Atoll, DiskFullError, InvalidRequestError, Sandbox } from '../../sdk/src/index.ts'
import { exchange } from '../support/api-client.ts'
import { useWorld, makeWorld } from '../support/world.ts'

let id: string
let folder: string
const world = useWorld({ limits: { uploadBytesMax: 3_000_000 } }, async () => {
  id = await world.sandbox()
  folder = join(world.machines.folder(id), 'files')
  mkdirSync(folder)
})

const files = (path: string, suffix = '') => `/api/sandboxes/${id}/files${suffix}?path=${encodeURIComponent(path)}`
const inFolder = (name: string, suffix = '') => files(join(folder, name), suffix)

test('file: a file is written from raw bytes of any content type, read back, listed and removed', async () => {
  const { api } = world
  const bytes = randomBytes(100_000)
  for (const type of [
    'application/json',
    'text/plain',
    'application/x-www-form-urlencoded',
    'nonsense',
    'multipart/form-data',
  ]) {
    const written = await api.put(inFolder('deep/er/a.bin'), bytes, { headers: { 'content-type': type } })
    assert.equal(written.status, 204, `${type}: ${written.text}`)
  }
  assert.deepEqual(readFileSync(join(folder, 'deep/er/a.bin')), bytes)
  const read = await api.get(inFolder('deep/er/a.bin'))
  assert.deepEqual(
    [read.status, read.headers['content-length'], read.headers['accept-ranges']],
    [200, '100000', 'bytes'],
  )
  assert.deepEqual(read.bytes, bytes)
  assert.deepEqual(readdirSync(join(folder, 'deep/er')), ['a.bin'], 'no temporary file is left')

  assert.equal((await api.post(inFolder('made/by/mkdir', '/mkdir'))).status, 204)
  const [entry] = (await api.get(inFolder('made/by', '/list'))).body
  assert.deepEqual([entry.name, entry.isDir, entry.path], ['mkdir', true, join(folder, 'made/by/mkdir')])
  assert.equal((await api.delete(inFolder('made'))).status, 204)
  assert.ok(!existsSync(join(folder, 'made')))
  assert.equal((await api.put(inFolder('empty'), Buffer.alloc(0))).status, 204)
  assert.equal((await api.get(inFolder('empty'))).headers['content-length'], '0')
})

test('file: the content type goes by the extension, and browsers may neither guess nor run', async () => {
  const cases: [string, string][] = [
    ['a.html', 'text/html; charset=utf-8'],
    ['a.json', 'application/json; charset=utf-8'],
    ['a.png', 'image/png'],
    ['a.unknown-thing', 'application/octet-stream'],
    ['noextension', 'application/octet-stream'],
  ]
  for (const [name, type] of cases) {
    writeFileSync(join(folder, name), '{}')
    const { headers } = await world.api.get(inFolder(name))
    assert.equal(headers['content-type'], type)
    assert.deepEqual([headers['x-content-type-options'], headers['content-security-policy']], ['nosniff', 'sandbox'])
  }
})

test('file: HEAD tells size and type without a body', async () => {
  writeFileSync(join(folder, 'head.txt'), '0123456789')
  const head = await world.api.send('HEAD', inFolder('head.txt'))
  assert.deepEqual([head.status, head.headers['content-length'], head.text], [200, '10', ''])
  const none = await world.api.send('HEAD', inFolder('none'))
  assert.deepEqual([none.status, none.headers['x-error-code']], [404, 'not_found'])
})

test('file: HEAD of what cannot be read is refused as GET is', async () => {
  execFileSync('mkfifo', [join(folder, 'fifo')])
  for (const path of [join(folder, 'fifo'), '/dev/null', folder]) {
    const url = files(path)
    for (const method of ['HEAD', 'GET']) assert.equal((await world.api.send(method, url)).status, 400, path)
  }
  const client = new Atoll({ url: world.origin, apiKey: world.api.key })
  const sandbox = await Sandbox.connect(id, { client })
  await assert.rejects(sandbox.files.size('/dev/null'), (error) => {
    return error instanceof InvalidRequestError && /no regular file/.test(error.message)
  })
})

test('file: one whose size the file system makes up arrives whole, and HEAD and ranges know its length', async () => {
  for (const path of ['/sys/kernel/mm/transparent_hugepage/enabled', '/proc/version']) {
    const url = files(path)
    const content = readFileSync(path, 'utf8')
    assert.equal((await world.api.get(url)).text, content)
    assert.equal((await world.api.send('HEAD', url)).headers['content-length'], String(content.length))
    const last = await world.api.get(url, { headers: { range: 'bytes=-3' } })
    assert.deepEqual([last.status, last.text], [206, content.slice(-3)])
  }
})

test('file: ranges are honoured, suffixes too; one that cannot be satisfied is 416', async () => {
  writeFileSync(join(folder, 'range.txt'), '0123456789')
  const cases: [range: string, status: number, text: string, contentRange: string | undefined][] = [
    ['bytes=0-3', 206, '0123', 'bytes 0-3/10'],
    ['bytes=4-', 206, '456789', 'bytes 4-9/10'],
    ['bytes=-3', 206, '789', 'bytes 7-9/10'],
    ['bytes=8-100', 206, '89', 'bytes 8-9/10'],
    ['bytes=10-', 416, '', 'bytes */10'],
    ['bytes=3-2', 200, '0123456789', undefined],
    ['bytes=0-1,4-5', 200, '0123456789', undefined],
  ]
  for (const [range, status, text, contentRange] of cases) {
    const answer = await world.api.get(inFolder('range.txt'), { headers: { range } })
    assert.deepEqual([answer.status, answer.headers['content-range']], [status, contentRange], range)
    if (status !== 416) assert.equal(answer.text, text)
  }
  const { headers } = await world.api.get(inFolder('range.txt'))
  const modified = headers['last-modified'] as string
  const same = await world.api.get(inFolder('range.txt'), { headers: { range: 'bytes=0-0', 'if-range': modified } })
  const other = await world.api.get(inFolder('range.txt'), { headers: { range: 'bytes=0-0', 'if-range': '"etag"' } })
  assert.deepEqual([same.status, other.status], [206, 200])
})

test('file: bad paths are refused: none, relative, missing, a directory, with NUL', async () => {
  const { api } = world
  assert.equal((await api.get(`/api/sandboxes/${id}/files`)).status, 400)
  assert.equal((await api.get(files(''))).status, 400)
  assert.equal((await api.get(files('relative'))).status, 400)
  assert.equal((await api.get(files('/a\0b'))).status, 400)
  assert.equal((await api.get(inFolder('none'))).status, 404)
  assert.equal((await api.get(files(folder))).status, 400)
  assert.equal((await api.get(files(folder), { headers: { range: 'bytes=0-1' } })).status, 400)
  assert.equal((await api.put(files(folder), Buffer.from('x'))).status, 400)
  assert.equal((await api.get(inFolder('none', '/list'))).status, 404)
  assert.equal((await api.delete(files('/'))).status, 400)
})

test('file: dots and symbolic links stay within the root that the sandbox sees', async () => {
  // The wall is the container's; here the guest's own view of paths is what is tested.
  writeFileSync(join(folder, 'target'), 'linked')
  symlinkSync(join(folder, 'target'), join(folder, 'absolute'))
  symlinkSync('../../../../../../../../../nowhere', join(folder, 'dangling'))
  assert.equal((await world.api.get(inFolder('absolute'))).text, 'linked')
  assert.equal((await world.api.get(inFolder('dangling'))).status, 404)
  assert.equal((await world.api.get(files(`/../../../..${folder}/target`))).text, 'linked')
})

test('file: an upload over the limit answers 413 and leaves the old file, said or streamed', async () => {
  const { api, origin } = world
  await api.put(inFolder('kept'), Buffer.from('old'))
  const large = Buffer.alloc(3_000_001)
  const said = await api.put(inFolder('kept'), large)
  assert.deepEqual([said.status, said.body.code], [413, 'too_large'])
  const streamed = await exchange(origin + inFolder('kept'), {
    method: 'PUT',
    headers: { 'x-api-key': api.key, 'transfer-encoding': 'chunked' },
    payload: large,
  })
  assert.equal(streamed.status, 413)
  assert.equal(readFileSync(join(folder, 'kept'), 'utf8'), 'old')
  assert.deepEqual(
    readdirSync(folder).filter((name) => name.includes('atoll') || name.startsWith('.')),
    [],
  )
})

test('file: an upload onto a full disk answers 507, and 503 while that of the host is full, and leaves the old file', async (t) => {
  const { api, machines } = world
  const small = join(folder, 'small')
  mkdirSync(small)
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', small])
  t.after(() => {
    machines.diskReport = { ...machines.diskReport, state: 'ok' }
    execFileSync('umount', [small])
  })
  await api.put(inFolder('small/kept'), Buffer.from('old'))
  const large = Buffer.alloc(2_000_000)
  const full = await api.put(inFolder('small/kept'), large)
  assert.deepEqual([full.status, full.body.code], [507, 'disk_full'])
  assert.equal(full.headers['retry-after'], undefined)
  const { body } = await api.post(`/api/sandboxes/${id}/files/upload-url`, { path: join(small, 'other') })
  const signed = await exchange(body.url, { method: 'PUT', payload: large })
  assert.deepEqual([signed.status, signed.body.code], [507, 'disk_full'])
  const sandbox = await Sandbox.connect(id, { client: new Atoll({ url: world.origin, apiKey: api.key }) })
  await assert.rejects(sandbox.files.write(join(small, 'other'), large), DiskFullError)
  // The pool fills up while the upload is under way.
  const upload = httpRequest(world.origin + inFolder('small/kept'), {
    method: 'PUT',
    headers: { 'x-api-key': api.key, 'content-length': String(large.length) },
  })
  const answered = once(upload, 'response') as Promise<[IncomingMessage]>
  upload.write(large.subarray(0, 100_000))
  await eventually(() => readdirSync(small).length >= 2)
  machines.diskReport = { ...machines.diskReport, state: 'low' }
  upload.end(large.subarray(100_000))
  const [{ statusCode, headers }] = await answered
  assert.deepEqual([statusCode, headers['retry-after']], [503, '60'])
  assert.deepEqual([readdirSync(small), readFileSync(join(small, 'kept'), 'utf8')], [['kept'], 'old'])
})

test('file: an upload that breaks off leaves the old file and nothing else', async () => {
  await world.api.put(inFolder('broken/file'), Buffer.from('old'))
  const upload = httpRequest(world.origin + inFolder('broken/file'), {
    method: 'PUT',
    headers: { 'x-api-key': world.api.key, 'content-length': '1000000' },
  })
  upload.on('error', () => {})
  upload.write(Buffer.alloc(500_000))
  await eventually(() => readdirSync(join(folder, 'broken')).length >= 2)
  upload.destroy()
  await eventually(() => readdirSync(join(folder, 'broken')).length <= 1)
  assert.deepEqual(readdirSync(join(folder, 'broken')), ['file'])
  assert.equal(readFileSync(join(folder, 'broken/file'), 'utf8'), 'old')
})

test('file: a file that shrinks while it is sent breaks the connection instead of lying about its length', async () => {
  const path = join(folder, 'shrinking')
  writeFileSync(path, Buffer.alloc(2))
  truncateSync(path, 400_000_000)
  const ended = await new Promise<string>((resolve) => {
    const download = httpRequest(
      world.origin + inFolder('shrinking'),
      { headers: { 'x-api-key': world.api.key } },
      (answer) => {
        answer.once('data', () => {
          answer.pause()
          truncateSync(path, 10)
          answer.resume()
        })
        answer.on('end', () => resolve('end'))
        answer.on('error', () => resolve('broken'))
      },
    )
    download.end()
  })
  assert.equal(ended, 'broken')
  assert.equal((await world.api.get(inFolder('shrinking'))).bytes.length, 10)
})

async function sign(operation: 'upload' | 'download', body: object): Promise<string> {
  const { status, body: signed } = await world.api.post(`/api/sandboxes/${id}/files/${operation}-url`, body)
  assert.equal(status, 200)
  assert.match(signed.expiresAt, /:\d\dZ$/)
  return signed.url
}

test('file: signed URLs upload and download without a key, and name the server by its own Host', async () => {
  const path = join(folder, 'sübdir "x"', "it's ünïcode;.txt")
  const up = await sign('upload', { path })
  assert.ok(up.startsWith(`${world.origin}/api/sandboxes/${id}/files/upload?`), up)
  assert.equal((await exchange(up, { method: 'PUT', payload: 'some text' })).status, 204)
  const down = await sign('download', { path, expiresIn: 60 })
  const got = await exchange(down)
  assert.deepEqual([got.status, got.text, got.headers['content-length']], [200, 'some text', '9'])
  assert.equal(
    got.headers['content-disposition'],
    `attachment; filename="it_s _n_code_.txt"; filename*=UTF-8''it%27s%20%C3%BCn%C3%AFcode%3B.txt`,
  )
  assert.equal((await exchange(down, { headers: { range: 'bytes=5-' } })).text, 'text')
  assert.equal((await exchange(down, { method: 'HEAD' })).headers['content-length'], '9')
})

test('file: a signed URL is refused when any part of it is altered, expired, or used for something else', async () => {
  const path = join(folder, 'signed.txt')
  writeFileSync(path, 'signed')
  const down = await sign('download', { path })
  const up = await sign('upload', { path, maxBytes: 10 })
  const other = await world.sandbox()
  const changed = (url: string, change: (parameters: URLSearchParams) => void): string => {
    const altered = new URL(url)
    change(altered.searchParams)
    return altered.href
  }
  const refused: [method: string, url: string][] = [
    ['GET', changed(down, (query) => query.set('path', '/etc/passwd'))],
    ['GET', changed(down, (query) => query.set('expires', String(Number(query.get('expires')) + 1)))],
    ['GET', changed(down, (query) => query.set('maxBytes', '5'))],
    [
      'GET',
      changed(down, (query) =>
        query.set('signature', query.get('signature')?.replace(/^./, (c) => (c === '0' ? '1' : '0')) ?? ''),
      ),
    ],
    ['GET', changed(down, (query) => query.set('signature', query.get('signature')?.toUpperCase().slice(0, 10) ?? ''))],
    ['GET', changed(down, (query) => query.set('signature', query.get('signature')?.toUpperCase() ?? ''))],
    ['GET', changed(down, (query) => query.set('signature', ''))],
    ['GET', changed(down, (query) => query.delete('signature'))],
    ['GET', changed(down, (query) => query.delete('expires'))],
    ['GET', changed(down, (query) => query.delete('path'))],
    ['GET', down.replace(id, other)],
    ['GET', up.replace('/upload?', '/download?')],
    ['PUT', down.replace('/download?', '/upload?')],
    ['PUT', changed(up, (query) => query.delete('maxBytes'))],
    ['PUT', changed(up, (query) => query.set('maxBytes', '1000'))],
    ['PUT', changed(up, (query) => query.set('path', '/tmp/other'))],
  ]
  for (const [method, url] of refused) {
    const { status, body } = await exchange(url, { method, ...(method === 'PUT' ? { payload: 'x' } : {}) })
    assert.deepEqual([status, body.code], [403, 'signature_invalid'], url)
  }
  const large = await exchange(up, { method: 'PUT', payload: 'x'.repeat(11) })
  assert.deepEqual([large.status, large.body.code], [413, 'too_large'])
  assert.equal((await exchange(up)).status, 404, 'an upload URL downloads nothing')
  assert.equal(readFileSync(path, 'utf8'), 'signed')
  assert.equal((await exchange(up, { method: 'PUT', payload: 'x'.repeat(10) })).status, 204)

  const brief = await sign('download', { path, expiresIn: 1 })
  const expires = Number(new URL(brief).searchParams.get('expires')) * 1000
  while (Date.now() <= expires) await new Promise((resolve) => setTimeout(resolve, 50))
  const late = await exchange(brief)
  assert.deepEqual([late.status, late.body.code], [403, 'signature_expired'])
})

test('file: a signed URL leads to where its client asked, or to where the operator says that the API is', async () => {
  const path = `/api/sandboxes/${id}/files/download-url`
  const asked = await world.api.post(path, { path: '/a' }, { host: 'box.lan:4713' })
  assert.match(asked.body.url, /^http:\/\/box\.lan:4713\/api\//)
  await using elsewhere = await makeWorld({ publicUrl: 'https://api.test' })
  const sandboxId = await elsewhere.sandbox()
  const answer = await elsewhere.api.post(`/api/sandboxes/${sandboxId}/files/download-url`, { path: '/a' })
  assert.match(answer.body.url, /^https:\/\/api\.test\/api\//)
})

test('file: signing is refused for bad input and unknown sandboxes', async () => {
  for (const body of [
    {},
    { path: 'relative' },
    { path: '/a', expiresIn: 0 },
    { path: '/a', expiresIn: 86_401 },
    { path: 5 },
  ]) {
    assert.equal(
      (await world.api.post(`/api/sandboxes/${id}/files/upload-url`, body)).status,
      400,
      JSON.stringify(body),
    )
  }
  assert.equal((await world.api.post('/api/sandboxes/sb-unknown00000/files/download-url', { path: '/a' })).status, 404)
})

test('file: large bodies go up and down whole', async () => {
  const bytes = randomBytes(2_900_000)
  assert.equal((await world.api.put(inFolder('large'), bytes)).status, 204)
  const { bytes: back } = await world.api.get(inFolder('large'))
  assert.equal(createHash('sha256').update(back).digest('hex'), createHash('sha256').update(bytes).digest('hex'))
})

test('file: what is at a path is told, a link as a link', async () => {
  const { api } = world
  writeFileSync(join(folder, 'told'), '12345', { mode: 0o640 })
  symlinkSync('told', join(folder, 'to-told'))
  const { modifiedAt, ...told } = (await api.get(inFolder('told', '/stat'))).body
  const expected = { path: join(folder, 'told'), name: 'told', type: 'file', size: 5, mode: '0640' }
  assert.deepEqual(told, { ...expected, uid: 0, gid: 0, user: 'root' })
  assert.match(modifiedAt, /^\d{4}-.*Z$/)
  const link = (await api.get(inFolder('to-told', '/stat'))).body
  assert.deepEqual([link.type, link.target, link.mode], ['symlink', 'told', '0777'])
  const none = await api.get(inFolder('none', '/stat'))
  assert.deepEqual([none.status, none.body.code], [404, 'not_found'])
  assert.match(none.body.error, /none: there is no such file or folder$/)
})

test('file: one is moved, and what is there is replaced only when that is said', async () => {
  const { api } = world
  const move = (body: object) => api.post(`/api/sandboxes/${id}/files/move`, body)
  writeFileSync(join(folder, 'from'), 'new')
  writeFileSync(join(folder, 'to'), 'old')
  const taken = await move({ from: join(folder, 'from'), to: join(folder, 'to') })
  assert.deepEqual([taken.status, taken.body.code], [409, 'conflict'])
  assert.equal((await move({ from: join(folder, 'from'), to: join(folder, 'to'), overwrite: true })).status, 204)
  assert.equal(readFileSync(join(folder, 'to'), 'utf8'), 'new')
  assert.equal((await move({ from: join(folder, 'from'), to: join(folder, 'x') })).status, 404)
  for (const [body, field] of [
    [{ to: '/x' }, 'from'],
    [{ from: '/x' }, 'to'],
    [{ from: 'x', to: '/x' }, 'from'],
    [{ from: '/x', to: '/\ud800' }, 'to'],
    [{ from: '/x', to: '/y', toBase64: 'L3g=' }, 'toBase64'],
    [{ fromBase64: '!', to: '/y' }, 'fromBase64'],
    [{ from: '/x', to: '/y', overwrite: 'yes' }, 'overwrite'],
  ] as const) {
    const refused = await move(body)
    assert.deepEqual([refused.status, refused.body.field], [400, field], JSON.stringify(body))
  }
})

test('file: a name that is no text is listed apart and reached by its bytes', async () => {
  const { api } = world
  const dir = join(folder, 'odd')
  mkdirSync(dir)
  const bytes = (last: number) => Buffer.concat([Buffer.from(`${dir}/`), Buffer.from([0x61, last])])
  writeFileSync(bytes(0xff), 'ff')
  writeFileSync(bytes(0xfe), 'fe')
  const entries: { name: string; pathBase64: string }[] = (await api.get(inFolder('odd', '/list'))).body
  assert.deepEqual(
    entries.map(({ name }) => name),
    ['a\\xfe', 'a\\xff'],
  )
  const at = (base64: string, suffix = '') =>
    `/api/sandboxes/${id}/files${suffix}?pathBase64=${encodeURIComponent(base64)}`
  for (const { name, pathBase64 } of entries) {
    assert.equal((await api.get(at(pathBase64))).text, name.slice(-2))
    assert.equal((await api.get(at(pathBase64, '/stat'))).body.name, name)
    assert.equal((await api.get(at(Buffer.from(pathBase64, 'base64').toString('base64url')))).status, 200)
  }
  const [one = { pathBase64: '' }] = entries
  const moved = await api.post(`/api/sandboxes/${id}/files/move`, { fromBase64: one.pathBase64, to: join(dir, 'text') })
  assert.equal(moved.status, 204)
  assert.equal(readFileSync(join(dir, 'text'), 'utf8'), 'fe')
  assert.equal((await api.put(at(one.pathBase64), Buffer.from('again'))).status, 204)
  assert.equal(readFileSync(bytes(0xfe), 'utf8'), 'again')
  assert.equal((await api.delete(at(one.pathBase64))).status, 204)
  for (const query of ['', '?pathBase64=a b', `?path=/x&pathBase64=L3g=`, '?pathBase64=eA==']) {
    const refused = await api.get(`/api/sandboxes/${id}/files/stat${query}`)
    assert.deepEqual([refused.status, String(refused.body.field).slice(0, 4)], [400, 'path'], query)
  }

  // The SDK takes what it was told.
  const client = new Atoll({ url: world.origin, apiKey: world.api.key })
  const { files: sdk } = await Sandbox.connect(id, { client })
  const [entry] = await sdk.list(dir)
  assert.ok(entry !== undefined)
  assert.deepEqual([entry.name, await sdk.readText(entry)], ['a\\xff', 'ff'])
  await sdk.move(entry, Buffer.from(bytes(0xfd)))
  assert.equal(await sdk.exists(entry), false)
  assert.equal((await sdk.stat(bytes(0xfd))).size, 2)
  assert.equal(await sdk.exists(join(dir, 'text/below')), false)
  const gone = await Sandbox.connect(await world.sandbox(), { client })
  await gone.delete()
  await assert.rejects(gone.files.exists('/'), { code: 'sandbox_stopped' })
})

test('file: changes of a folder are followed over a sleep of the sandbox, which the watch neither prevents nor ends', async () => {
  const client = new Atoll({ url: world.origin, apiKey: world.api.key })
  const sandbox = await Sandbox.create({ client })
  const dir = join(folder, 'followed')
  mkdirSync(dir)
  const leave = new AbortController()
  const changes = sandbox.files.watch(dir, { recursive: true, signal: leave.signal })
  const next = async () => {
    const { value } = await changes.next()
    return value === undefined ? undefined : `${value.type} ${value.path?.slice(dir.length) ?? ''}`.trim()
  }
  let isOpen = false
  const first = next().finally(() => (isOpen = true))
  await eventually(() => writeFileSync(join(dir, 'probe'), '') ?? isOpen, { what: 'the watch is open' })
  assert.match((await first) ?? '', /^\w+ \/probe$/)
  await sandbox.files.write(join(dir, 'sub/file'), 'x')
  const told = []
  while (told.at(-1) !== 'created /sub/file') told.push(await next())
  assert.ok(told.includes('created /sub') && told.every((change) => /probe|sub/.test(change ?? '')), told.join())
  const afterSleep = (async () => {
    // What is made while a new folder is looked into is told twice.
    for (;;) {
      const change = await next()
      if (change !== 'created /sub/file') return change
    }
  })()
  await sandbox.hibernate()
  assert.equal((await sandbox.info()).status, 'hibernated')
  await sandbox.wake()
  assert.equal(await afterSleep, 'lost')
  const end = next()
  await sandbox.delete()
  assert.equal(await end, 'ended')
  assert.equal(await next(), undefined)
  const refused = await world.api.get(inFolder('none', '/watch'))
  assert.deepEqual([refused.status, refused.body.code], [404, 'not_found'])
  leave.abort()
})
