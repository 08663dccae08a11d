/** A data directory whose layers came out of another one by `btrfs send | receive`, with copies of its records and memory. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmod, cp, mkdir, mkdtemp, readFile, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { createGuest } from '../../src/runtime/guest-client/index.ts'
import { createOciDriver, ociRuntimes } from '../../src/runtime/index.ts'
import type { KnownResources, RuntimeDriver } from '../../src/sandbox/ports/runtime-driver.ts'
import { imageDir } from '../support/images.ts'
import { claimSubnet } from './subnets.ts'
import { askWitness, create, freshId, remove, specOf, startWitness, succeed } from './driver-shell.ts'

const runFile = promisify(execFile)
const poolBytes = 2 * 1024 ** 3
const { cidr: subnet } = await claimSubnet()

/** All that a file system holds and a copy may lose, made by root inside. */
const hostile = `
set -e
mkdir -p /srv/tree && cd /srv/tree
rm /usr/bin/curl; rm -r /usr/share/doc/bash; mkdir /usr/share/doc/bash; echo mine > /usr/share/doc/bash/mine
echo x > one; ln one two; ln one ../three; ln -s one link; ln -s /nowhere dangling; ln -s "$(printf 'a\\nb')" odd
echo s > setuid; chown 33:44 setuid; chmod 6755 setuid; mkdir -m 1777 sticky; mkfifo pipe
echo x > -- "-rf"; echo x > "$(printf 'new\\nline')"; echo x > "$(printf '\\377\\376')"
truncate -s 64M sparse; echo end >> sparse; touch -d @12345.678901234 old; chown 65535:65535 old
python3 - <<'PYTHON'
import os, socket
socket.socket(socket.AF_UNIX).bind("socket")
os.setxattr("one", "user.overlay.opaque", b"y")
os.setxattr("sticky", "user.note", bytes(range(256)))
os.makedirs("/".join(["x" * 200] * 15))
PYTHON
`
const witness = `
held = open("/srv/g1")
def answer():
    held.seek(0)
    return held.read().encode()`

describe('a data directory whose layers were received', () => {
  let root: string
  let driver: RuntimeDriver
  const said: string[] = []
  const [lower, upper] = [freshId('cp'), freshId('cp')]
  const hibernated = freshId('sb')
  const guest = (id: string) => createGuest((signal) => driver.dial(id, signal))
  const none: Pick<KnownResources, 'sandboxIds' | 'checkpointIds'> = { sandboxIds: [], checkpointIds: [] }
  const open = async (name: string, known = none, mayQuarantineMany = false) => {
    const log = (message: string) => void said.push(message)
    const options = { dataDir: `${root}/${name}`, imageDir, subnet, diskPoolBytes: poolBytes, log, mayQuarantineMany }
    driver = createOciDriver({ runtime: ociRuntimes.runc, ...options })
    return driver.open({ ...known, abandoned: none })
  }
  const mounted = async (name: string, work: (pool: string) => Promise<void>) => {
    const pool = `${root}/pool-${name}`
    await mkdir(pool, { recursive: true })
    await runFile('mount', ['-o', 'loop', `${root}/${name}/pool.img`, pool])
    try {
      await work(pool)
    } finally {
      await runFile('umount', [pool])
    }
  }
  /** All of a layer but its inode numbers: what tar keeps, links between files among it, and what it does not, as sockets. */
  const contentOf = async (pool: string, id: string) => {
    const script = `cd "$1"; sync -f .
      find . -printf '%y %m %U %G %s %T@ %p %l\\0' | sort -z | sha256sum
      stat -c '%b' upper/srv/tree/sparse
      tar --create --format=posix --sort=name --numeric-owner --acls --xattrs --xattrs-include='*' \
        --pax-option=exthdr.name=%d/%f,delete=atime,delete=ctime upper 2>/dev/null | sha256sum`
    const { stdout } = await runFile('sh', ['-c', script.replace('find .', 'find upper'), 'sh', `${pool}/layers/${id}`])
    return stdout
  }
  let content = ''

  before(async () => {
    root = await realpath(await mkdtemp(`${tmpdir()}/atoll-received-`))
    await chmod(root, 0o711)
    await open('source')
    const first = await create(driver)
    await succeed(guest(first), 'cd /srv; for i in $(seq 40); do echo f$i > f$i; done')
    await driver.checkpoint(first, lower, 'disk_only')
    const second = await create(driver, { from: { checkpointId: lower } })
    await succeed(guest(second), 'cd /srv; for i in $(seq 40); do echo g$i > g$i; done')
    await succeed(guest(second), hostile)
    await startWitness(guest(second), witness)
    assert.equal(await askWitness(guest(second)), '1 g1')
    await driver.checkpoint(second, upper, 'full')
    await driver.create(specOf(hibernated, { from: { checkpointId: upper } }))
    await succeed(guest(hibernated), 'cd /srv; for i in $(seq 40); do echo h$i > h$i; done; echo more >> f1')
    await driver.hibernate(hibernated)
    await remove(driver, first, second)
    await driver.close()
    await open('copy')
    await driver.close()

    await mounted('source', (from) =>
      mounted('copy', async (to) => {
        content = await contentOf(from, upper)
        const send = 'btrfs send --quiet "$1" | btrfs receive --quiet "$2"'
        const receive = (path: string, folder: string) =>
          runFile('bash', ['-o', 'pipefail', '-c', send, 'send', path, folder])
        for (const id of [lower, upper]) await receive(`${from}/layers/${id}`, `${to}/layers`)
        const snapshot = (...args: string[]) => runFile('btrfs', ['subvolume', 'snapshot', ...args])
        await snapshot('-r', `${from}/sandboxes/${hibernated}`, `${from}/${hibernated}`)
        await receive(`${from}/${hibernated}`, to)
        await snapshot(`${to}/${hibernated}`, `${to}/sandboxes/${hibernated}`)
        const record = JSON.parse(await readFile(`${root}/source/sandboxes/${hibernated}.json`, 'utf8')) as {
          memory: { folder: string }
        }
        const { folder } = record.memory
        await cp(`${from}/${folder}`, `${to}/${folder}`, { recursive: true })
        await cp(`${from}/memory/checkpoints/${upper}`, `${to}/memory/checkpoints/${upper}`, { recursive: true })
      }),
    )
    for (const kind of ['sandboxes', 'checkpoints']) {
      await cp(`${root}/source/${kind}`, `${root}/copy/${kind}`, { recursive: true })
    }
  })

  after(async () => {
    await driver.close()
    for (const name of ['copy', 'source']) {
      await open(name, none, true)
      await driver.close()
    }
    await rm(root, { recursive: true })
  })

  test('received layers: no two files of layers, forks and hibernated sandboxes share an inode number', async () => {
    const report = await open('copy', { sandboxIds: [hibernated], checkpointIds: [lower, upper] })
    assert.deepEqual([report.dormant, report.lostCheckpoints], [[hibernated], []])
    const onLower = await create(driver, { from: { checkpointId: lower } })
    const withMemory = await create(driver, { from: { checkpointId: upper } })
    assert.equal(await askWitness(guest(withMemory)), '2 g1', 'its processes went on')
    await driver.checkpoint(withMemory, `${upper}-2`, 'disk_only')
    const onDisk = await create(driver, { from: { checkpointId: `${upper}-2` } })
    await driver.wake(specOf(hibernated))
    assert.equal(await askWitness(guest(hibernated)), '2 g1', 'its processes went on')
    assert.equal(await succeed(guest(hibernated), 'tail -n 1 /srv/f1; cat /srv/h7'), 'more\nh7')
    for (const id of [onLower, withMemory, onDisk, hibernated]) {
      await succeed(guest(id), 'cd /srv; for i in $(seq 40); do echo own > own$i; done')
      assert.equal(await succeed(guest(id), "find /srv -type f -links 1 -printf '%i\\n' | sort | uniq -d"), '')
      await succeed(guest(id), 'cd /srv; for i in $(seq 2 40); do mv f$i own$i; test "$(cat own$i)" = f$i; done')
      if (id !== onLower)
        await succeed(guest(id), 'cd /srv; for i in $(seq 2 40); do mv g$i own$i; done; test ! -e /usr/bin/curl')
    }
    assert.equal(said.filter((line) => line.includes(upper)).length, 1, said.join('\n'))
    await remove(driver, onLower, withMemory, onDisk, `${upper}-2`)
  })

  test('received layers: a renumbered copy has the same content, and is copied once', async () => {
    await driver.delete(hibernated)
    await driver.close()
    await mounted('copy', async (pool) => assert.equal(await contentOf(pool, upper), content))
    said.length = 0
    await open('copy', { sandboxIds: [], checkpointIds: [lower, upper] })
    assert.deepEqual(said, [])
  })
})
