import assert from 'node:assert/strict'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { buffer } from 'node:stream/consumers'
import { gzipSync, zstdCompressSync } from 'node:zlib'
import fc from 'fast-check'
import { ServiceError } from '../errors.ts'
import { entriesOf } from '../protocol/tar-reader.ts'
import type { ContextFile } from '../protocol/http/images.ts'
import { extraHeader, paxRecord, tarEntry as entry, tarOf } from '../../test/support/tar.ts'
import {
  contextFolders,
  digestOf,
  fails,
  file,
  filesIn,
  folder,
  pieces,
  sha256,
  symlink,
} from './contexts/testing/kit.ts'

const world = await contextFolders()
const { contextsOf } = world
const orgId = 'org_1'

test('contexts: the files come in any order and in several archives, and a build reads them as a tree', async () => {
  const contexts = contextsOf()
  const { id, missing } = await contexts.create(orgId, [
    file('src/b.txt', 'b', { mode: 0o755, mtime: 1000 }),
    file('a', 'a'),
    symlink('src/out', '../../etc/passwd'),
    folder('src/empty', 0o700),
    file('src-x', 'x'),
  ])
  assert.deepEqual(missing, ['a', 'b', 'x'].map(digestOf).toSorted())
  await assert.rejects(contexts.open(orgId, id), fails('conflict', /lacks files, such as a:/))
  const first = await contexts.upload(orgId, id, pieces(tarOf(entry('./src/b.txt', 'b'))))
  assert.deepEqual(first, { id, missing: ['a', 'x'].map(digestOf).toSorted(), ignored: 0 })
  const second = await contexts.upload(
    orgId,
    id,
    pieces(gzipSync(tarOf(entry('other', '?'), entry('src-x', 'x'), entry('a', 'a')))),
  )
  assert.deepEqual(second, { id, missing: [], ignored: 1 })
  using context = await contexts.open(orgId, id)
  assert.deepEqual(await context.list('/'), [
    { path: '/a', type: 'file', mode: 0o644 },
    { path: '/src', type: 'directory', mode: 0o755 },
    { path: '/src-x', type: 'file', mode: 0o644 },
  ])
  assert.deepEqual(
    (await context.list('/src')).map(({ path }) => path),
    ['/src/b.txt', '/src/empty', '/src/out'],
  )
  assert.deepEqual(await context.find('/src/out'), {
    path: '/src/out',
    type: 'symlink',
    mode: 0o777,
    target: '../../etc/passwd',
  })
  assert.deepEqual(await context.find('/'), { path: '/', type: 'directory', mode: 0o755 })
  assert.equal(await context.find('/src/b'), undefined)
  assert.equal((await buffer(context.read('/src/b.txt'))).toString(), 'b')
  await assert.rejects(buffer(context.read('/src/out')), fails('not_found', /src\/out is no file/))
  await assert.rejects(context.list('/a'), fails('not_found', /a is no folder/))
  assert.deepEqual((await filesIn(world.dir)).filter((name) => name.length === 64).length, 3)
})

test('contexts: equal files are one context, and a digest depends on all but times', async () => {
  const contexts = contextsOf()
  const of = async (...files: ContextFile[]) => {
    const { id } = await contexts.create(orgId, files)
    await contexts.upload(orgId, id, pieces(tarOf(entry('d/a', 'a'), entry('e/a', 'a'))))
    using context = await contexts.open(orgId, id)
    return { id, digest: context.digest, d: await context.digestOf('/d'), a: await context.digestOf('/d/a') }
  }
  const one = await of(file('d/a', 'a'))
  assert.deepEqual(await of(folder('d'), file('d/a', 'a')), one)
  const later = await of(file('d/a', 'a', { mtime: 5 }))
  assert.notEqual(later.id, one.id)
  assert.deepEqual([later.digest, later.d, later.a], [one.digest, one.d, one.a])
  const moded = await of(file('d/a', 'a', { mode: 0o600 }))
  assert.ok(moded.digest !== one.digest && moded.d !== one.d && moded.a !== one.a)
  const [moreFolder, both] = [
    await of(folder('d', 0o700), file('d/a', 'a')),
    await of(file('d/a', 'a'), file('e/a', 'a')),
  ]
  assert.ok(moreFolder.d !== one.d && moreFolder.a === one.a)
  assert.ok(both.digest !== one.digest && both.d === one.d)
  const linked = await of(file('d/a', 'a'), symlink('d/l', 'a'))
  assert.notEqual((await of(file('d/a', 'a'), symlink('d/l', 'b'))).d, linked.d)
  const { id } = await contexts.create(orgId, [file('d/a', 'a'), file('e/a', 'a')])
  using context = await contexts.open(orgId, id)
  assert.equal(await context.digestOf('/d'), await context.digestOf('/e'), 'the name of the root does not count')
  assert.equal(await context.digestOf('/'), context.digest)
})

test('contexts: what an organisation has tells another one nothing', async () => {
  const contexts = contextsOf()
  const { id } = await contexts.create(orgId, [file('a', 'secret')])
  await contexts.upload(orgId, id, pieces(tarOf(entry('a', 'secret'))))
  for (const call of [
    () => contexts.open('org_2', id),
    () => contexts.upload('org_2', id, pieces(tarOf())),
    () => contexts.open(orgId, '../org_2'),
  ]) {
    await assert.rejects(call, fails('not_found', /no context/))
  }
  assert.deepEqual((await contexts.create('org_2', [file('a', 'secret')])).missing, [digestOf('secret')])
})

test('contexts: wrong entries are refused with their field and path', async () => {
  const contexts = contextsOf({ contextFilesMax: 10 })
  const cases: [RegExp, ...ContextFile[]][] = [
    [/^files\.0\.path must be relative: "\/etc\/passwd"/, file('/etc/passwd', '')],
    [/^files\.1\.path must not have \.\.: "a\/\.\.\/b"/, file('c', ''), file('a/../b', '')],
    [/must not have \.:/, file('./a', '')],
    [/has an empty name/, file('a//b', '')],
    [/has an empty name/, folder('a/')],
    [/must not contain NUL/, file('a\0b', '')],
    [/must be 1 to 4096 bytes/, file('', '')],
    [/must be 1 to 4096 bytes/, file('é'.repeat(3000), '')],
    [/has a name of more than 255 bytes/, file('x'.repeat(256), '')],
    [/must have at most 128 names/, file('x/'.repeat(128) + 'x', '')],
    [/^files\.1\.path is given twice: a/, file('a', ''), file('a', 'b')],
    [/^files\.0\.path is below a file: a\/b\/c/, file('a/b/c', ''), file('a', '')],
    [/^files\.1\.path is below a symlink: a\/b/, symlink('a', '/etc'), file('a/b', '')],
    [/^files\.0\.target must be 1 to 4095 bytes/, symlink('a', '')],
    [/^files\.0\.target must not contain NUL/, symlink('a', 'b\0')],
    [/^files\.0\.target is required of a link: a/, { path: 'a', type: 'symlink', mode: 0 }],
    [/^files\.0\.target is of links alone/, file('a', '', { target: 'b' })],
    [/^files\.0\.digest is required of a file: a/, { path: 'a', type: 'file', mode: 0, size: 1 }],
    [/^files\.0\.digest is of files alone/, { ...folder('a'), digest: digestOf('') }],
    [/^files\.1\.size is not that of another file with its digest: b/, file('a', 'x'), file('b', 'x', { size: 2 })],
    [/^files must be at most 10/, ...Array.from({ length: 11 }, (_, index) => file(String(index), ''))],
    [/^files make more than 20 files and folders/, file('a/'.repeat(20) + 'b', '')],
    [/^files\.0\.path is required/, { type: 'file', mode: 0 }],
    [/^files\.0\.pathBase64 excludes path/, file('a', '', { pathBase64: 'YQ==' })],
    [/^files\.0\.pathBase64 must be base64/, { ...folder('a'), path: undefined, pathBase64: '?' }],
    [/^files\.0\.path is required/, folder('\ud800')],
    [/^files have more than 5368709120 bytes together/, file('a', '', { size: 5 * 2 ** 30 }), file('b', 'b')],
  ]
  for (const [message, ...files] of cases) {
    await assert.rejects(contexts.create(orgId, files), fails('invalid_request', message), String(message))
  }
  assert.deepEqual(await filesIn(world.dir), [])
})

test('contexts: names that are no UTF-8, and long ones, go through', async () => {
  const contexts = contextsOf()
  const odd = Buffer.from([0x62, 0xff, 0x0a])
  const long = `${'n'.repeat(200)}/${'m'.repeat(200)}`
  const { id } = await contexts.create(orgId, [
    { ...file('', 'odd'), path: undefined, pathBase64: odd.toString('base64') },
    file(long, 'long'),
    file('ü', 'u'),
    { type: 'symlink', mode: 0o777, path: 'link', targetBase64: odd.toString('base64') },
  ])
  const sent = tarOf(
    entry(odd.toString('latin1'), 'odd'),
    entry(long, 'long'),
    entry(Buffer.from('ü').toString('latin1'), 'u'),
  )
  assert.deepEqual(await contexts.upload(orgId, id, pieces(sent)), { id, missing: [], ignored: 0 })
  using context = await contexts.open(orgId, id)
  const packed = await Array.fromAsync(
    entriesOf(context.pack([{ path: '/', name: '' }])),
    async ({ body, name, type, target }) => {
      const content = Buffer.concat(await Array.fromAsync(body)).toString()
      return [type, name, content || target]
    },
  )
  assert.deepEqual(packed, [
    ['file', odd.toString('latin1'), 'odd'],
    ['link', 'link', odd.toString('latin1')],
    ['folder', `${'n'.repeat(200)}/`, ''],
    ['file', long, 'long'],
    ['file', Buffer.from('ü').toString('latin1'), 'u'],
  ])
})

test('contexts: a pack has the entries in their order, under their names, without what is left out', async () => {
  const contexts = contextsOf()
  const large = Buffer.alloc(300_000, 'large')
  const { id } = await contexts.create(orgId, [
    file('d/large', large, { mode: 0o4755, mtime: 1234.9 }),
    file('d/skipped/a', 'a'),
    file('d/x', 'x'),
    file('d/y', ''),
  ])
  await contexts.upload(
    orgId,
    id,
    pieces(
      zstdCompressSync(tarOf(entry('d/large', large), entry('d/x', 'x'), entry('d/y', ''), entry('d/skipped/a', 'a'))),
      50_000,
    ),
  )
  using context = await contexts.open(orgId, id)
  const entries = [
    { path: '/d/x', name: 'renamed' },
    { path: '/d', name: 'to' },
  ]
  const packed = context.pack(entries, { skip: new Set(['/d/skipped', '/d/y']) })
  const found = await Array.fromAsync(entriesOf(packed), async ({ body, name, mode, size, modifiedSeconds }) => ({
    ...{ name, mode, size, modifiedSeconds },
    sha256: sha256(Buffer.concat(await Array.fromAsync(body))),
  }))
  assert.deepEqual(
    found.map(({ name, mode, size }) => [name, mode, size]),
    [
      ['renamed', 0o644, 1],
      ['to/', 0o755, 0],
      ['to/large', 0o4755, large.length],
      ['to/x', 0o644, 1],
    ],
  )
  assert.deepEqual([found[2]!.sha256, found[2]!.modifiedSeconds], [sha256(large), 1234])
  assert.ok(
    Math.abs(found[0]!.modifiedSeconds - Date.now() / 1000) < 60,
    'a file without a time has that of the context',
  )
  const broken = context.pack([{ path: '/no', name: 'no' }])
  await assert.rejects(buffer(broken), fails('not_found', /no is not in the context/))
})

test('contexts: a reader that leaves a pack leaves no file open', async () => {
  const contexts = contextsOf()
  const large = Buffer.alloc(1_000_000)
  const { id } = await contexts.create(orgId, [file('large', large)])
  await contexts.upload(orgId, id, pieces(tarOf(entry('large', large)), 65_536))
  using context = await contexts.open(orgId, id)
  const openFiles = async () => {
    const links = await readdir('/proc/self/fd')
    return links.length
  }
  const before = await openFiles()
  for (let turn = 0; turn < 20; turn += 1) {
    const packed = context.pack([{ path: '/large', name: 'large' }])
    for await (const _ of packed) break
    assert.ok(packed.destroyed)
  }
  while ((await openFiles()) > before) await new Promise(setImmediate)
})

test('contexts: a file that changed while it was sent is refused with its path, and what came before stays', async () => {
  const contexts = contextsOf()
  const { id } = await contexts.create(orgId, [file('a', 'a'), file('src/b', 'bbb'), file('c', Buffer.alloc(100_000))])
  for (const [path, content] of [
    ['src/b', 'bbx'],
    ['src/b', 'bb'],
    ['c', Buffer.alloc(100_000, 1)],
  ] as const) {
    const sent = contexts.upload(orgId, id, pieces(tarOf(entry('a', 'a'), entry(path, content))))
    await assert.rejects(sent, (error: unknown) => {
      assert.ok(fails('invalid_request', new RegExp(`^${path} changed while it was sent`))(error))
      assert.deepEqual((error as ServiceError).details, { path })
      return true
    })
  }
  const { missing } = await contexts.create(orgId, [file('a', 'a'), file('src/b', 'bbb')])
  assert.deepEqual(missing, [digestOf('bbb')])
  assert.deepEqual(
    (await filesIn(world.dir)).filter((name) => name.length === 64),
    [sha256('a')],
  )
  assert.deepEqual(await readdir(`${world.dir}/${orgId}/drafts`), [])
})

test('contexts: uploads of one file at the same time, and of two contexts that share it, are one content', async () => {
  const contexts = contextsOf()
  const content = Buffer.alloc(200_000, 'same')
  const [one, two] = [
    await contexts.create(orgId, [file('a', content)]),
    await contexts.create(orgId, [file('b', content)]),
  ]
  const sent = await Promise.all([
    contexts.upload(orgId, one.id, pieces(tarOf(entry('a', content)), 10_000)),
    contexts.upload(orgId, one.id, pieces(tarOf(entry('a', content)), 11_000)),
    contexts.upload(orgId, two.id, pieces(tarOf(entry('b', content)), 12_000)),
  ])
  assert.deepEqual(
    sent.flatMap(({ missing }) => missing),
    [],
  )
  assert.deepEqual((await filesIn(world.dir)).length, 3, 'two indexes and one content')
  assert.deepEqual(await readdir(`${world.dir}/${orgId}/drafts`), [])
})

test('contexts: an upload that breaks off leaves no draft, and the next one goes on', async () => {
  const contexts = contextsOf()
  const large = Buffer.alloc(500_000, 1)
  const { id } = await contexts.create(orgId, [file('a', 'a'), file('b', large)])
  const archive = tarOf(entry('a', 'a'), entry('b', large))
  async function* breaksOff(): AsyncGenerator<Uint8Array> {
    yield archive.subarray(0, 200_000)
    throw new Error('the client has gone')
  }
  await assert.rejects(contexts.upload(orgId, id, breaksOff()), /the client has gone/)
  assert.deepEqual(await readdir(`${world.dir}/${orgId}/drafts`), [])
  await assert.rejects(
    contexts.upload(orgId, id, pieces(archive.subarray(0, 300_000), 65_536)),
    fails('invalid_request', /ended early/),
  )
  assert.deepEqual((await contexts.upload(orgId, id, pieces(tarOf(entry('b', large)), 65_536))).missing, [])
})

test('contexts: whatever an archive says, its upload ends, and nothing but the contents of the context is kept', async () => {
  const contexts = contextsOf({ contextBytesMax: 2 ** 20, contextFilesMax: 100 })
  let runs = 0
  const contents = { a: 'a', 'src/b': 'b'.repeat(700), c: Buffer.alloc(70_000, 'c').toString() }
  const long = extraHeader('x', paxRecord('path', 'src/b'))
  const parts = [
    entry('a', 'a'),
    long,
    entry('any', contents['src/b']),
    extraHeader('L', 'c\0'),
    entry('any', contents.c),
  ]
  const whole = tarOf(...parts)
  const change = fc.record({ at: fc.nat(whole.length - 1), bytes: fc.uint8Array({ minLength: 1, maxLength: 12 }) })
  await fc.assert(
    fc.asyncProperty(
      fc.array(change, { maxLength: 8 }),
      fc.nat(whole.length),
      fc.boolean(),
      async (changes, cut, isZipped) => {
        const owner = `org_${++runs}`
        const { id } = await contexts.create(
          owner,
          Object.entries(contents).map(([path, content]) => file(path, content)),
        )
        const archive = Buffer.from(whole)
        for (const { at, bytes } of changes) archive.set(bytes.subarray(0, whole.length - at), at)
        const sent = archive.subarray(0, cut % 3 === 0 ? cut : archive.length)
        await contexts.upload(owner, id, pieces(isZipped ? gzipSync(sent) : sent, 5000)).catch((error: unknown) => {
          assert.ok(
            error instanceof ServiceError && ['invalid_request', 'too_large'].includes(error.code),
            String(error),
          )
        })
        assert.deepEqual(await readdir(`${world.dir}/${owner}/drafts`), [])
        const known = [id, ...Object.values(contents).map(sha256)]
        assert.deepEqual(
          (await filesIn(join(world.dir, owner))).filter((name) => !known.includes(name)),
          [],
        )
      },
    ),
    { numRuns: 60 },
  )
})
