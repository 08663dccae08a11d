/** What becomes of what is there when an archive is unpacked, as the rules of `COPY` and `ADD` say. */
import assert from 'node:assert/strict'
import { lstat, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { refuses } from '../../lib/testing/refuses.ts'
import type { UnpackOptions } from '../../sandbox/ports/guest.ts'
import { list, python, shell, TreeWorld } from './testing/tree-world.ts'

const { place, unpack, tarOf } = await TreeWorld.startForFile()

test('archive: a merge keeps what is there, and takes the modes of nested folders', async () => {
  // fsutil/copy: the folder of the target keeps what it is, those in it become what the source has.
  const to = await place()
  await shell(
    to,
    'chmod 700 .; mkdir -m 700 etc; echo keep > etc/keep; echo old > etc/file; ln -s /etc/passwd etc/link; ln -s nowhere etc/dangling',
  )
  const tar = await tarOf(
    'mkdir -m 2751 etc; echo new > etc/file; echo link > etc/link; echo d > etc/dangling; chmod 755 .; chown -R 5:6 .',
  )
  await unpack(tar, { target: to })
  assert.equal((await lstat(to)).mode & 0o7777, 0o700)
  assert.deepEqual(await list(to), [
    'etc d 2751 5:6',
    'etc/dangling f 644 5:6',
    'etc/file f 644 5:6',
    'etc/keep f 644 0:0',
    'etc/link f 644 5:6',
  ])
  assert.ok((await readFile('/etc/passwd', 'utf8')).includes('root'))
})

test('archive: a folder that is made has mode 0755, or the one that is asked for', async () => {
  const tar = await tarOf('mkdir -m 700 sub; chmod 700 .; chown 5:6 .')
  for (const [options, top, sub] of [
    [{}, '755 0:0', '700 0:0'],
    [{ owner: '7' }, '755 7:7', '700 7:7'],
    [{ mode: '750' }, '750 0:0', '750 0:0'],
    [{ mode: 'o=' }, '750 0:0', '700 0:0'],
    [{ mode: '750', asArchive: true }, '755 0:0', '750 0:0'],
  ] as const) {
    const at = await place()
    await unpack(tar, { target: join(at, 'parent/new'), ...options })
    const parent = `parent d 755 ${top.split(' ')[1]}`
    assert.deepEqual(await list(at), [parent, `parent/new d ${top}`, `parent/new/sub d ${sub}`])
  }
})

test('archive: a folder does not take the place of a file or a link, nor a file that of a folder', async () => {
  const to = await place()
  await shell(to, 'mkdir -p usr/bin folder; ln -s usr/bin bin; echo x > file; mkdir other')
  for (const [script, message] of [
    ['mkdir bin; echo 1 > bin/sh', /bin: is no folder/],
    ['mkdir file', /file: is no folder/],
    ['echo 1 > folder', /folder: is a folder/],
    ['ln -s x folder', /folder: is a folder/],
    ['mkfifo folder', /folder: is a folder/],
  ] as const) {
    await refuses(unpack(await tarOf(script), { target: to }), 'conflict', message)
  }
  // Without an entry of the folder too.
  await refuses(
    unpack(await tarOf('mkdir bin; echo 1 > bin/sh', 'bin/sh'), { target: to }),
    'conflict',
    /bin: a part of the path/,
  )
  assert.deepEqual(await readdir(join(to, 'usr/bin')), [])
})

test('archive: as an archive, what comes takes the place of what is there', async () => {
  // moby/pkg/archive: RemoveAll of whatever is in the way.
  const to = await place()
  await shell(
    to,
    'mkdir -p usr/bin folder/deep; touch folder/deep/x; ln -s usr/bin bin; ln -s /usr/bin sbin; ln -s .. up; echo x > file',
  )
  await unpack(
    await tarOf(
      'echo 1 > folder; mkdir file; mkdir sbin bin; echo 2 > bin/sh; echo 3 > sbin/sh; mkdir up; echo 4 > up/x',
      'folder file bin/sh sbin/sh up/x',
    ),
    {
      target: to,
      asArchive: true,
    },
  )
  // Links on the way are followed, and the target is their root.
  assert.deepEqual(
    (await list(to)).map((line) => line.split(' ').slice(0, 2).join(' ')),
    ['bin l', 'file d', 'folder f', 'sbin l', 'up l', 'usr d', 'usr/bin d', 'usr/bin/sh f', 'x f'],
  )
  await unpack(await tarOf('mkdir bin; echo 5 > bin/sh'), { target: to, asArchive: true })
  assert.ok((await lstat(join(to, 'bin'))).isDirectory())
})

test('archive: nothing leaves the target', async () => {
  const outside = await place()
  const to = join(outside, 'target')
  await mkdir(to)
  await writeFile(join(outside, 'secret'), 'secret')
  for (const asArchive of [false, true]) {
    const evil = await python(outside, evilTars)
    for (const [index, line] of evil.trim().split('\n').entries()) {
      await unpack(Buffer.from(line, 'base64'), { target: to, asArchive }).catch((error: unknown) => error)
      assert.deepEqual(await readdir(outside), ['secret', 'target'], `archive ${index}`)
      assert.equal(await readFile(join(outside, 'secret'), 'utf8'), 'secret', `archive ${index}`)
      await shell(to, 'find . -mindepth 1 -delete')
    }
  }
})

/** Archives that try to write `../secret` and `../evil`, in base64. */
const evilTars = String.raw`
import tarfile, io, base64
def tar(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.GNU_FORMAT) as archive:
        for name, kind, target in members:
            info = tarfile.TarInfo(name); info.type = kind; info.linkname = target
            content = b'evil' if kind == tarfile.REGTYPE else b''
            info.size = len(content); info.mode = 0o777
            archive.addfile(info, io.BytesIO(content))
    print(base64.b64encode(out.getvalue()).decode())
F, L, H, D = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
tar(('../secret', F, '')); tar(('../evil', F, '')); tar(('a/../../evil', F, '')); tar(('..', L, 'x')); tar(('../evil', D, ''))
tar(('up', L, '..'), ('up/secret', F, '')); tar(('up', L, '..'), ('up/evil', D, ''))
tar(('up', L, '../..'), ('up/target/evil', F, '')); tar(('x', L, '../secret'), ('x', F, ''))
tar(('a', L, '.'), ('a/b', L, '..'), ('b/evil', F, '')); tar(('x', H, '../secret'), ('x', F, ''))
tar(('up', L, '..'), ('x', H, 'up/secret'), ('x', F, '')); tar(('x', L, '../evil'), ('x/', D, ''), ('x/y', F, ''))
tar(('up', L, '..'), ('up', D, ''), ('up/../../evil', F, '')); tar(('x', L, '/proc/self/cwd'), ('x/evil', F, ''))
tar(('a/b/c/d', L, '../../../../evil'), ('a/b/c/d', F, '')); tar(('up', L, '..'), ('up/.', D, ''), ('up/secret', H, 'up/secret'))
`

test('archive: an absolute name is one below the target', async () => {
  const to = await place()
  const tar = Buffer.from(
    (
      await python(
        to,
        String.raw`${evilTars.split('\nF, L')[0]}
F = tarfile.REGTYPE
tar(('/etc/x', F, ''), ('./a/./b//c', F, ''))`,
      )
    ).trim(),
    'base64',
  )
  await unpack(tar, { target: to })
  assert.deepEqual(
    (await list(to)).map((line) => line.split(' ')[0]),
    ['a', 'a/b', 'a/b/c', 'etc', 'etc/x'],
  )
})

test('archive: links lead to the target, and what is missing is made', async () => {
  const at = await place()
  await shell(at, 'mkdir real; ln -s real link; ln -s $PWD/absent dangling; touch file')
  const tar = await tarOf('echo 1 > x')
  await unpack(tar, { target: join(at, 'link/new'), owner: '7:8' })
  await unpack(tar, { target: join(at, 'dangling/deep'), owner: '7:8' })
  assert.deepEqual(
    (await list(at)).map((line) => line.split(' ').slice(0, 4).join(' ')),
    [
      'absent d 755 7:8',
      'absent/deep d 755 7:8',
      'absent/deep/x f 644 7:8',
      'dangling l 777 0:0',
      'file f 644 0:0',
      'link l 777 0:0',
      'real d 755 0:0',
      'real/new d 755 7:8',
      'real/new/x f 644 7:8',
    ],
  )
  await refuses(unpack(tar, { target: join(at, 'file/x') }), 'invalid_request', /is not a directory|no folder/)
  await symlink('loop', join(at, 'loop'))
  await refuses(unpack(tar, { target: join(at, 'loop/x') }), 'invalid_request', /too many symbolic links/)
})

test('archive: owners and modes are those that are asked for', async () => {
  const tar = await tarOf(
    'mkdir -m 700 d; printf x > d/f; chmod 640 d/f; ln -s f d/l; mkfifo -m 600 d/p; chown -hR 9:9 d',
    'd',
  )
  const listed = async (options: Partial<UnpackOptions>) => {
    const to = await place()
    await unpack(tar, { target: to, ...options })
    return await list(to)
  }
  const expected = (owner: string, folder: string, file: string, pipe: string) => [
    `d d ${folder} ${owner}`,
    `d/f f ${file} ${owner}`,
    `d/l l 777 ${owner} f`,
    `d/p p ${pipe} ${owner}`,
  ]
  assert.deepEqual(await listed({}), expected('9:9', '700', '640', '600'))
  assert.deepEqual(await listed({ owner: '42' }), expected('42:42', '700', '640', '600'))
  assert.deepEqual(await listed({ owner: 'nobody:daemon', mode: '4711' }), expected('65534:1', '4711', '4711', '4711'))
  assert.deepEqual(await listed({ owner: ':1', mode: 'go=u,u-w,a+X' }), expected('0:1', '577', '466', '466'))
  await refuses(listed({ owner: 'nosuchuser' }), 'invalid_request', /^owner: .*nosuchuser/)
  await refuses(listed({ owner: 'root:nosuchgroup' }), 'invalid_request', /^owner: /)
  await refuses(listed({ mode: '999' }), 'invalid_request', /^mode: '999'/)
})

test('archive: hard links reach files that were there before, also in another folder', async () => {
  const to = await place()
  await shell(to, 'mkdir a; echo old > a/x; ln a/x keep')
  await unpack(await tarOf('mkdir a b; echo new > a/x; ln a/x b/y; ln a/x z'), { target: to })
  const inodes = await Promise.all(['a/x', 'b/y', 'z', 'keep'].map(async (name) => (await lstat(join(to, name))).ino))
  assert.equal(new Set(inodes).size, 2)
  assert.equal(await readFile(join(to, 'keep'), 'utf8'), 'old\n')
  await refuses(
    unpack(await tarOf('echo 1 > a; ln a b', 'a b | tail -c +1025'), { target: await place() }),
    'invalid_request',
    /b: is a hard link to a, which is not there/,
  )
})
