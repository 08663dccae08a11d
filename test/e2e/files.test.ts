/** Files of real sandboxes: what a real overlay, a real dump of memory and a hostile `tar` do to moves, watches and folders. */
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Atoll, type FileChange, Sandbox } from '../../sdk/src/index.ts'
import { AtollServer } from './server.ts'

const server = await AtollServer.startForFile()
const client = new Atoll({ url: server.url, apiKey: server.key })
const dir = await mkdtemp('/var/tmp/atoll-files-')
after(() => rm(dir, { recursive: true }))
const sandbox = await Sandbox.create({ client, ttlSeconds: 600 })
const { files } = sandbox

test('files: a folder goes up and down with all that it is, odd names too', async () => {
  const source = join(dir, 'source')
  await mkdir(join(source, 'deep'), { recursive: true })
  const names = ['plain', 'new\nline', 'n'.repeat(255)].map((name) => Buffer.from(name))
  for (const name of [...names, Buffer.from([0xff, 0xfe])]) {
    await writeFile(Buffer.concat([Buffer.from(`${source}/deep/`), name]), name)
  }
  await symlink('/etc/passwd', join(source, 'link'))
  let bytes = 0
  await files.upload(source, '/workspace/tree', { onProgress: (progress) => (bytes = progress.bytes) })
  assert.ok(bytes > 5 * 512)
  const entries = await files.list('/workspace/tree/deep')
  assert.equal(entries.filter(({ pathBase64 }) => pathBase64 !== undefined).length, 1)
  assert.equal((await files.stat('/workspace/tree/link')).type, 'symlink')
  await files.download('/workspace/tree', join(dir, 'back'))
  const listed = async (path: string) => (await readdir(path, { encoding: 'latin1' })).toSorted()
  assert.deepEqual(await listed(join(dir, 'back/deep')), await listed(join(source, 'deep')))
  assert.equal(await readFile(join(dir, 'back/deep/new\nline'), 'utf8'), 'new\nline')
  await files.download('/workspace/tree/deep/plain', join(dir, 'plain'))
  assert.equal(await readFile(join(dir, 'plain'), 'utf8'), 'plain')
})

test('files: what the tar of a sandbox says is written below the target alone', async () => {
  // The archive has a link out of the folder and a file behind it, a device, and a name with dots.
  const script = `import io, sys, tarfile
a = tarfile.open(fileobj=sys.stdout.buffer, mode='w|', format=tarfile.PAX_FORMAT)
def add(name, kind=tarfile.REGTYPE, link='', data=b'x'):
    i = tarfile.TarInfo(name); i.type = kind; i.linkname = link
    i.size = len(data) if kind == tarfile.REGTYPE else 0
    a.addfile(i, io.BytesIO(data))
add('./out', tarfile.SYMTYPE, '${dir}'); add('./out/escaped'); add('../escaped'); add('${dir}/escaped')
add('./null', tarfile.CHRTYPE); add('./good', data=b'good'); a.close()`
  const hostile = await Sandbox.create({ client, ttlSeconds: 600 })
  await hostile.files.write('/root/hostile.py', script)
  await hostile.files.write('/usr/local/bin/tar', '#!/bin/sh\nexec python3 /root/hostile.py\n')
  await hostile.run('chmod', { args: ['+x', '/usr/local/bin/tar'] })
  const target = join(dir, 'target')
  await assert.rejects(hostile.files.download('/workspace', target), /not copied: \.\/out\/escaped leads over out/)
  assert.equal(await readFile(join(target, 'good'), 'utf8'), 'good')
  assert.deepEqual((await readdir(target)).toSorted(), ['good', 'out'])
  assert.ok(!(await readdir(dir)).includes('escaped'))
  await hostile.delete()
})

test('files: a folder of a lower layer is moved, and only with the rights to it', async () => {
  await files.makeDir('/workspace/mine/below')
  await files.write('/workspace/mine/below/file', 'kept')
  const checkpoint = await sandbox.checkpoint({ kind: 'disk_only' })
  const fork = await checkpoint.fork()
  await assert.rejects(fork.files.move('/workspace/mine', '/workspace/yours', { user: 'nobody' }), {
    code: 'forbidden',
    message: /not permitted|permission denied/,
  })
  await fork.files.move('/workspace/mine', '/workspace/yours')
  assert.equal(await fork.files.readText('/workspace/yours/below/file'), 'kept')
  assert.equal(await fork.files.exists('/workspace/mine'), false)
  await fork.delete()
  await checkpoint.delete()
})

test('files: a watch goes on over a checkpoint and a sleep with memory, tells what it lost, and wakes nothing', async () => {
  const leave = new AbortController()
  const changes = files.watch('/workspace', { recursive: true, signal: leave.signal })
  const until = async (isIt: (change: FileChange) => boolean): Promise<FileChange> => {
    for (;;) {
      const { value } = await changes.next()
      assert.ok(value !== undefined, 'the watch has ended')
      if (isIt(value)) return value
    }
  }
  const opened = until(({ path }) => path === '/workspace/probe')
  const probe = setInterval(() => void files.write('/workspace/probe', 'x').catch(() => undefined), 50)
  await opened
  clearInterval(probe)
  await sandbox.run('mkdir -p /workspace/new/deep && sleep 0.1 && echo x > /workspace/new/deep/file')
  await until(({ path }) => path === '/workspace/new/deep/file')
  const lost = () => until(({ type }) => type === 'lost')
  const afterCheckpoint = lost()
  const checkpoint = await sandbox.checkpoint({ kind: 'full' })
  await afterCheckpoint
  await checkpoint.delete()
  const afterSleep = lost()
  await sandbox.hibernate()
  assert.equal((await sandbox.info()).status, 'hibernated')
  await sandbox.wake()
  await afterSleep
  const moved = until(({ type }) => type === 'moved')
  await files.move('/workspace/new/deep', '/workspace/new/deeper')
  assert.deepEqual([(await moved).path, (await moved).from], ['/workspace/new/deeper', '/workspace/new/deep'])
  const ended = until(({ type }) => type === 'ended')
  await sandbox.delete()
  assert.equal((await ended).reason, 'stopped')
  assert.equal((await changes.next()).done, true)
  leave.abort()
})
