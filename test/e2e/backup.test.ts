import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import {
  chmod,
  chown,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  realpath,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { basename, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { BackupFolder } from '../../src/server/backup/folder.ts'
import { formatNumber, type Manifest, manifestText } from '../../src/server/backup/manifest.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { imageDir } from '../support/images.ts'
import { restoreInto, runBackup, startProgram, type Target } from './backup-programs.ts'
import { settled } from './host.ts'
import { forkOf, sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer, freeSubnet } from './server.ts'
import { createSession, endSession, getSession } from './session-client.ts'

const run = promisify(execFile)
/** Of a program that may use raw sockets, as the kernel keeps it. */
const capability = '0100000200200000000000000000000000000000'
const counter = `n=0; while read -r _; do n=$((n+1)); echo $n >/tmp/count.new; mv /tmp/count.new /tmp/count; done <>/tmp/ask`

/** A process that holds a number in its memory alone. */
async function startCounter(server: AtollServer, id: string): Promise<void> {
  await sh(server, id, `mkfifo /tmp/ask && (setsid bash -c '${counter}' </dev/null &>/dev/null &)`)
}

/** How often it has been asked. */
async function count(server: AtollServer, id: string): Promise<number> {
  const ask = 'rm -f /tmp/count; echo >/tmp/ask; until [ -e /tmp/count ]; do sleep 0.02; done; cat /tmp/count'
  return Number(await sh(server, id, ask))
}

async function statusOf(server: AtollServer, id: string): Promise<[string, string | undefined]> {
  const { status, reason } = (await server.json('GET', `/api/sandboxes/${id}`)) as { status: string; reason?: string }
  return [status, reason]
}

const hibernate = (server: AtollServer, id: string) => server.json('POST', `/api/sandboxes/${id}/hibernate`)

/** An image folder as a setup leaves it, but without the guest, which the backup must bring. */
async function imagesWithoutGuest(folder: string): Promise<void> {
  await mkdir(folder)
  const guest = await readlink(`${imageDir}/guest`)
  for (const name of await readdir(imageDir)) {
    const from = join(imageDir, name)
    const isLink = (await lstat(from)).isSymbolicLink()
    if (name !== guest && !name.startsWith('.')) await symlink(isLink ? await readlink(from) : from, join(folder, name))
  }
}

describe('backup', () => {
  let root: string
  let dir: string
  let server: AtollServer
  let running: string
  let sleeper: string
  let forked: string
  let checkpoint: string
  let session: string

  before(async () => {
    root = await realpath(await mkdtemp('/var/tmp/atoll-backup-'))
    // Users of sandboxes find their programs below it.
    await chmod(root, 0o711)
    dir = `${root}/backup`
    server = await AtollServer.start()
    await server.json('POST', '/api/volumes', { name: 'shared', sizeMB: 64 })
    const source = await startSandbox(server)
    await startCounter(server, source)
    assert.equal(await count(server, source), 1)
    await sh(server, source, 'echo layer > /root/layer; rm /etc/issue; ln /root/layer /root/link')
    checkpoint = await takeCheckpoint(server, source, 'with memory')
    await sh(server, source, 'echo later > /root/later')
    await takeCheckpoint(server, source, 'gone', 'disk_only')
    await server.json('DELETE', `/api/sandboxes/${source}`)
    running = await startSandbox(server, { volumes: [{ name: 'shared', path: '/data' }], tags: { team: 'reef' } })
    await sh(server, running, 'echo 1 > /root/file; echo 1 > /data/file; cp /bin/true /root/able')
    const set = `os.setxattr('/root/able', 'security.capability', bytes.fromhex('${capability}'))`
    await sh(server, running, `python3 -c "import os; ${set}"`)
    sleeper = await startSandbox(server)
    await startCounter(server, sleeper)
    for (const expected of [1, 2, 3]) assert.equal(await count(server, sleeper), expected)
    await hibernate(server, sleeper)
    forked = await forkOf(server, checkpoint)
    await sh(server, forked, 'echo fork >> /root/layer')
    await hibernate(server, forked)
    ;({ id: session } = await createSession(server, 'A page about coral reefs'))
    await endSession(server, session)
  })

  after(async () => {
    await server[Symbol.asyncDispose]()
    await rm(root, { recursive: true })
  })

  test('backup: the first has everything, in a folder for root alone, and sandboxes run on', async () => {
    const pids = await sh(server, running, 'pidof sleep || (setsid sleep 1000 &>/dev/null & echo $!)')
    const { status, output } = await runBackup(server, dir)
    assert.equal(status, 0, output)
    assert.match(output, /complete: \d+ MB written, everything/)
    assert.equal(await sh(server, running, 'pidof sleep'), pids)
    for (const name of ['', ...(await readdir(dir, { recursive: true }))]) {
      const { mode, uid } = await lstat(join(dir, name))
      assert.deepEqual([mode & 0o077, uid], [0, 0], name)
    }
  })

  test('backup: one that is killed in the middle leaves the one before whole, and nothing in the pool', async () => {
    await sh(server, running, 'head -c 60000000 /dev/urandom > /root/large')
    const manifest = await readFile(`${dir}/manifest.json`, 'utf8')
    const files = (await readdir(dir, { recursive: true })).toSorted()
    await using held = await heldSends(root)
    const program = startProgram(server, 'backup', [dir], held.target(server))
    await held.begun()
    program.child.kill('SIGSTOP')
    const second = await runBackup(server, `${root}/other`)
    program.child.kill('SIGKILL')
    await program.ended
    await held.end()
    assert.deepEqual([second.status, second.output], [2, 'backup: another backup is under way\n'])
    assert.equal(await readFile(`${dir}/manifest.json`, 'utf8'), manifest)
    const { poolDir } = new HostNames(server.dataDir)
    const drafts = async () => (await readdir(`${poolDir}/backup`)).filter((name) => name.startsWith('draft.'))
    assert.deepEqual(await settled(drafts, []), [])
    {
      await using folder = await BackupFolder.forRestore(dir)
      await folder.verify(folder.manifest)
    }
    {
      // The next one begins so.
      await using folder = await BackupFolder.forBackup(dir)
      assert.deepEqual((await readdir(folder.path, { recursive: true })).toSorted(), files)
    }
  })

  test('restore: another machine has all that the last backup had: disks, memory, checkpoints, volumes, rows, images', async () => {
    assert.equal(await count(server, sleeper), 4)
    await hibernate(server, sleeper)
    await sh(server, running, 'echo 2 > /root/file; echo 2 > /data/file; rm /root/large')
    const written = await runBackup(server, dir)
    assert.equal(written.status, 0, written.output)
    const megabytes = Number(/complete: (\d+) MB written, what has changed/.exec(written.output)?.[1])
    assert.ok(megabytes < 60, written.output)
    // What happens afterwards is not in it.
    await sh(server, running, 'echo 3 > /root/file')
    await server.json('DELETE', `/api/sandboxes/${sleeper}`)

    await imagesWithoutGuest(`${root}/images`)
    const env = { ATOLL_IMAGE_DIR: `${root}/images` }
    const target = { dataDir: `${root}/data`, subnet: freeSubnet(), env }
    const cutOff = startProgram(server, 'restore', [dir], target)
    await cutOff.says(/memory: 2 of/)
    cutOff.child.kill('SIGKILL')
    await cutOff.ended
    const half = await restoreInto(server, `${root}/none`, target)
    assert.match(half.output, /does not exist/)
    const early = startProgram(server, 'main', [], target)
    assert.equal(await early.ended, 2)
    assert.match(early.output(), /was cut off.*repeat npm run restore/)

    const restored = await restoreInto(server, dir, target)
    assert.equal(restored.status, 0, restored.output)
    assert.ok(!restored.output.includes('NOT'), restored.output)
    assert.equal(basename(await realpath(`${root}/images/guest`)), await readlink(`${imageDir}/guest`))
    const away = startProgram(server, 'backup', [`${root}/other`], target)
    assert.deepEqual([await away.ended, away.output().includes('no server runs')], [2, true], away.output())
    await using copy = await AtollServer.start({ ...target, key: server.key })
    assert.doesNotMatch(copy.output, /"quarantined":\[\{/)

    assert.deepEqual(await statusOf(copy, running), ['hibernated', 'host_lost'])
    assert.deepEqual(await statusOf(copy, sleeper), ['hibernated', undefined])
    assert.equal(await count(copy, sleeper), 5, 'its process has gone on')
    const files = 'cat /root/file /data/file; test -e /root/large || echo gone'
    assert.equal(await sh(copy, running, files), '2\n2\ngone')
    const get = `print(os.getxattr('/root/able', 'security.capability').hex())`
    assert.equal(await sh(copy, running, `python3 -c "import os; ${get}"`), capability)
    const full = 'head -c 80000000 /dev/zero > /data/full 2>/dev/null; stat -c %s /data/full'
    assert.ok(Number(await sh(copy, running, full)) < 64 * 1024 * 1024, 'the volume has its size')
    assert.equal(await count(copy, forked), 2)
    const ofLayer = 'cat /root/link; test -e /etc/issue || echo gone; test /root/later || echo none'
    assert.equal(await sh(copy, forked, 'cat /root/layer; test -e /etc/issue || echo gone'), 'layer\nfork\ngone')
    const fork = await forkOf(copy, checkpoint)
    assert.equal(await count(copy, fork), 2, 'the memory of a checkpoint')
    assert.equal(await sh(copy, fork, ofLayer), 'layer\ngone')
    assert.match(JSON.stringify((await getSession(copy, session)).messages), /coral reefs/)
  })

  test('restore: what is no whole backup of this version and of root is refused, as is a data directory in use', async () => {
    const target = { dataDir: `${root}/empty`, subnet: freeSubnet() }
    await mkdir(target.dataDir)
    const refused = async (folder: string, words: RegExp, at: Target = target) => {
      const { status, output } = await restoreInto(server, folder, at)
      assert.equal(status, 2, output)
      assert.match(output, words)
      assert.deepEqual(await readdir(target.dataDir), [])
    }
    await refused(dir, /a server runs on .*: stop it first/, { ...target, dataDir: server.dataDir })
    await mkdir(`${root}/used`)
    await writeFile(`${root}/used/file`, '')
    await refused(dir, /is not empty \(file\)/, { ...target, dataDir: `${root}/used` })
    await refused(target.dataDir, /DIR: .* holds no backup/)
    await refused(`${root}/used/file`, /DIR: .* is no folder/)

    const copy = `${root}/copied`
    await run('cp', ['--archive', '--link', dir, copy])
    const replace = async (name: string, text: string | Buffer) => {
      await rm(`${copy}/${name}`)
      await writeFile(`${copy}/${name}`, text)
    }
    await chown(copy, 1, 0)
    await refused(copy, /belongs to the user 1/)
    await chown(copy, 0, 0)
    await chmod(copy, 0o770)
    await refused(copy, /can be written by others/)
    await chmod(copy, 0o700)
    const text = await readFile(`${copy}/manifest.json`, 'utf8')
    const { manifest } = JSON.parse(text) as { manifest: Manifest }
    const { file } = manifest.records
    const records = await readFile(`${copy}/${file}`)
    await replace(file, Buffer.from(records.map((byte, index) => (index === 40 ? byte ^ 1 : byte))))
    await refused(copy, new RegExp(`damaged: ${file} does not have its checksum`))
    await replace(file, records.subarray(1))
    await refused(copy, new RegExp(`damaged: ${file} has `))
    await rm(`${copy}/${file}`)
    await refused(copy, new RegExp(`damaged: ${file} is missing`))
    await replace('manifest.json', text.replace('sandboxes/', 'sandboxes/x'))
    await refused(copy, /damaged: its manifest has been changed/)
    await replace('manifest.json', manifestText({ ...manifest, format: (formatNumber + 1) as never }))
    await refused(copy, /of a newer version of Atoll/)
  })

  test('backup: the end of the server ends it, the one before is whole, and the next start leaves no snapshot of it', async () => {
    await sh(server, running, 'head -c 60000000 /dev/urandom > /root/large')
    const files = (await readdir(dir, { recursive: true })).toSorted()
    await using held = await heldSends(root)
    const program = startProgram(server, 'backup', [dir], held.target(server))
    await held.begun()
    program.child.kill('SIGSTOP')
    await server.kill()
    await server.restart()
    const names = await readdir(`${new HostNames(server.dataDir).poolDir}/backup`)
    assert.deepEqual(
      names.filter((name) => name.startsWith('draft.')),
      [],
    )
    program.child.kill('SIGCONT')
    assert.equal(await program.ended, 2)
    assert.match(program.output(), /the server has ended/)
    assert.deepEqual((await readdir(dir, { recursive: true })).toSorted(), files)
    await using folder = await BackupFolder.forRestore(dir)
    await folder.verify(folder.manifest)
  })

  test('backup: a disk that btrfs cannot send is told and keeps no other out, and is in the next one when it can', async () => {
    const deep = `for _ in range(30): os.mkdir('x' * 200); os.chdir('x' * 200)`
    await sh(server, forked, `python3 -c "import os; os.mkdir('/srv/deep'); os.chdir('/srv/deep')\n${deep}"`)
    const { status, output } = await runBackup(server, dir)
    assert.equal(status, 3, output)
    assert.match(output, new RegExp(`NOT in the backup: sandboxes/${forked}: .*File name too long`))
    assert.ok((await subvolumesIn(dir)).includes(`sandboxes/${running}`))
    await sh(server, forked, 'rm -r /srv/deep')
    const next = await runBackup(server, dir)
    assert.equal(next.status, 0, next.output)
    assert.ok((await subvolumesIn(dir)).includes(`sandboxes/${forked}`))
  })

  test('backup: a folder that is full, in use for something else, or in the data directory is refused and left as it was', async () => {
    const refused = async (folder: string, words: RegExp) => {
      const { status, output } = await runBackup(server, folder)
      assert.equal(status, 2, output)
      assert.match(output, words)
    }
    await mkdir(`${root}/else`)
    await writeFile(`${root}/else/file`, '')
    await refused(`${root}/else`, /DIR: .* is not empty and holds no backup/)
    await refused(`${server.dataDir}/backup`, /DIR: .* is in the data directory/)
    await refused(`${root}/none/none`, /DIR: .* cannot be made/)
    await refused('--all', /usage/)
    const small = `${root}/small`
    await mkdir(small)
    await run('mount', ['-t', 'tmpfs', '-o', 'size=4m,mode=0700', 'tmpfs', small])
    try {
      await refused(small, /disk of .*small is full/)
      assert.deepEqual((await readdir(small, { recursive: true })).toSorted(), ['images', 'streams'])
    } finally {
      await run('umount', [small])
    }
    const forgotten = await runBackup(server, '--forget')
    assert.equal(forgotten.status, 0, forgotten.output)
    assert.deepEqual(await readdir(`${new HostNames(server.dataDir).poolDir}/backup`), [])
  })
})

async function subvolumesIn(folder: string): Promise<string[]> {
  const { manifest } = JSON.parse(await readFile(`${folder}/manifest.json`, 'utf8')) as { manifest: Manifest }
  return Object.keys(manifest.subvolumes)
}

/** Sends of subvolumes that do not end: each stands still in the middle. */
async function heldSends(root: string) {
  const folder = await mkdtemp(`${root}/held-`)
  const marks = `${folder}/sleepers`
  const { stdout } = await run('sh', ['-c', 'command -v btrfs'])
  const btrfs = stdout.trim()
  const hold = `sh -c 'echo $$ >>${marks}; exec sleep 600 >/dev/null 2>&1'`
  const script = `#!/bin/sh\n[ "$1" = send ] || exec ${btrfs} "$@"\n${btrfs} "$@" | { head -c 65536; ${hold}; }\n`
  await writeFile(`${folder}/btrfs`, script, { mode: 0o755 })
  const sleepers = async () => (await readFile(marks, 'utf8').catch(() => '')).split('\n').filter(Boolean).map(Number)
  const end = async () => {
    for (const pid of await sleepers()) {
      try {
        process.kill(pid, 'SIGKILL')
      } catch (error) {
        // It has ended with its group.
        assert.equal((error as NodeJS.ErrnoException).code, 'ESRCH')
      }
    }
    await rm(marks, { force: true })
  }
  return {
    target: ({ dataDir, subnet }: AtollServer): Target => ({
      ...{ dataDir, subnet },
      env: { PATH: `${folder}:${process.env['PATH']}` },
    }),
    begun: () => eventually(async () => (await sleepers()).length > 0),
    end,
    [Symbol.asyncDispose]: end,
  }
}
