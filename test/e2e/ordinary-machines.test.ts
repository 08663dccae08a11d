/**
 * What machines of users have and this one has not: `/run` mounted noexec or small, a strict umask, a short search path; and
 * machines that cannot run Atoll, where that is said before anything is made. Each is a mount namespace of its own here.
 */
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { imageDir } from '../support/images.ts'
import { ApiClient } from '../support/api-client.ts'
import { machine, ownNetwork, ownRun, run } from './own-machine.ts'
import { forkOf, sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const noexecRun = ownRun()

const folder = await mkdtemp('/var/tmp/atoll-machines-')
after(() => rm(folder, { recursive: true }))

test('noexec /run: a sandbox starts, forks with its memory and wakes', async () => {
  await using server = await AtollServer.start({ prefix: machine(noexecRun) })
  const source = await startSandbox(server)
  await server.json('POST', `/api/sandboxes/${source}/exec`, { cmd: 'sleep', args: ['4711'] })
  const fork = await forkOf(server, await takeCheckpoint(server, source, 'one'))
  for (const sandboxId of [source, fork]) {
    assert.match(await sh(server, sandboxId, 'pgrep --exact sleep'), /^\d+$/)
    assert.match(await sh(server, sandboxId, 'cat /etc/hosts'), new RegExp(` ${sandboxId}$`, 'm'))
  }
  await server.json('POST', `/api/sandboxes/${fork}/hibernate`)
  await server.json('POST', `/api/sandboxes/${fork}/wake`)
  assert.match(await sh(server, fork, 'pgrep --exact sleep'), /^\d+$/)
})

test('doctor: it starts, forks and wakes a sandbox, also where /run is mounted noexec, and leaves nothing', async () => {
  const dataDir = join(folder, 'doctored')
  await mkdir(dataDir)
  const { status, output } = await run([...machine(noexecRun), process.execPath, 'src/server/doctor.ts'], {
    ATOLL_DATA_DIR: dataDir,
  })
  for (const row of ['start', 'network', 'fork', 'wake']) assert.match(output, new RegExp(`^${row} +works `, 'm'))
  assert.equal(status, 0, output)
  assert.deepEqual(await readdir(dataDir), [])
})

test('doctor: it reports the error of runc when no sandbox starts, and tries nothing that needs a start', async () => {
  const { status, output } = await run([process.execPath, 'src/server/doctor.ts'], {
    PATH: `${await refusingRunc()}:${process.env['PATH']}`,
    ATOLL_DATA_DIR: folder,
  })
  assert.equal(status, 1)
  assert.match(output, /^start +fails +the sandbox cannot be started: no such luck in \/sandboxes$/m)
  assert.match(output, /^wake +missing +not tried, since the start failed$/m)
})

test('doctor: it names a name server that takes every address of the machine', async () => {
  const scratch = await mkdtemp(join(folder, 'names-'))
  const pidFile = join(scratch, 'other.pid')
  const script = `${ownNetwork}
dnsmasq --conf-file=/dev/null --no-resolv --pid-file=${pidFile}`
  const command = [...machine(script, '--net'), process.execPath, 'src/server/doctor.ts']
  try {
    const { output } = await run(command, { SCRATCH: scratch, ATOLL_DATA_DIR: scratch })
    assert.match(output, /^start +fails +dnsmasq on \S+ stopped at once .*already in use; another name server/m)
  } finally {
    process.kill(Number(await readFile(pidFile, 'utf8')))
  }
})

test('start: one that runc refuses is reported at once, is tried again, and fails a session with its reason', async () => {
  const env = {
    PATH: `${await refusingRunc()}:${process.env['PATH']}`,
    ATOLL_LIMITS: '{"session":{"shortageWaitMs":3000}}',
  }
  await using server = await AtollServer.start({ env })
  const api = new ApiClient(server.url, server.key)
  const create = await api.post('/api/sandboxes', {})
  assert.deepEqual([create.status, create.body.code], [503, 'unavailable'])
  assert.match(create.body.error, /no such luck in \/sandboxes$/)
  const { body: session } = await api.post('/v1/sessions', { prompt: 'a page', user_id: 'ada' })
  for (;;) {
    const { body } = await api.get(`/v1/sessions/${session.id}`)
    await sleep(50)
    if (body.activity === 'starting') continue
    assert.equal(body.activity, 'failed')
    assert.deepEqual(
      body.events.map(({ type, level }: Record<string, string>) => [type, level]),
      [
        ['session_started', 'info'],
        ['session_started', 'warning'],
        ['session_failed', 'error'],
      ],
    )
    assert.match(body.events[1].message, /^The sandbox could not be started yet: .*no such luck in \/sandboxes\. It is/)
    assert.match(body.events[2].message, /^The sandbox could not be started: .*no such luck in \/sandboxes\.$/)
    break
  }
})

test('server: a data directory behind a symbolic link, a umask of 077 and a short search path do not matter', async () => {
  const dataDir = join(folder, 'link')
  await mkdir(join(folder, 'target'))
  await symlink(join(folder, 'target'), dataDir)
  const prefix = ['sh', '-c', 'umask 077; exec "$@"', 'sh']
  await using server = await AtollServer.start({ dataDir, prefix, env: { PATH: '/usr/bin:/bin' } })
  const id = await startSandbox(server)
  assert.equal(await sh(server, id, 'echo kept > /root/file; id -u'), '0')
  assert.equal(await server.stop(), 0)
  await server.restart()
  await server.json('POST', `/api/sandboxes/${id}/hibernate`)
  assert.equal(await sh(server, id, 'cat /root/file'), 'kept')
})

test('setup: it finds the programs of a base image whatever the search path of its user', async () => {
  // A copy that takes what programs write: the image itself is never written to.
  const copy = `
mount -t tmpfs tmpfs "$SCRATCH"
mkdir "$SCRATCH/upper" "$SCRATCH/work" "$SCRATCH/root"
mount -t overlay -o "lowerdir=$BASE,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" overlay "$SCRATCH/root"`
  const check = 'set -eu; source scripts/setup/base-image.sh; check_base "$SCRATCH/root"'
  const scratch = join(folder, 'base')
  await mkdir(scratch)
  const env = {
    PATH: '/usr/sbin:/usr/bin:/sbin:/bin',
    SCRATCH: scratch,
    BASE: await realpath(`${imageDir}/base/rootfs`),
  }
  const { status, output } = await run([...machine(copy), 'bash', '--norc', '-c', check], env)
  assert.equal(status, 0, output)
  assert.match(output, /^v24\./m)
})

test('full /run: it is reported, and sandboxes start again when there is space', async () => {
  await using server = await AtollServer.start({ prefix: machine(ownRun(',size=512k')) })
  const api = new ApiClient(server.url, server.key)
  const started: string[] = []
  for (;;) {
    const { status, body } = await api.post('/api/sandboxes', { timeout: 0 })
    if (status === 201) {
      started.push(body.sandboxID)
      assert.ok(started.length < 100, 'so small a /run holds no hundred sandboxes')
      continue
    }
    assert.deepEqual([status, body.code, body.error], [503, 'no_capacity', '/run is full'])
    break
  }
  const [first] = started
  assert.ok(first)
  assert.equal((await api.delete(`/api/sandboxes/${first}`)).status, 204)
  assert.equal((await api.post('/api/sandboxes', { timeout: 0 })).status, 201)
})

const unfit: { what: string; script: string; says: RegExp; namespaces?: string[] }[] = [
  {
    what: 'a container',
    script: 'true',
    namespaces: ['--pid', '--fork', '--mount-proc'],
    says: /^ {2}machine: this is a container \(.*physical or virtual/m,
  },
  {
    what: 'a kernel without btrfs',
    script: 'grep -v btrfs /proc/filesystems >"$SCRATCH/known"; mount --bind "$SCRATCH/known" /proc/filesystems',
    says: /^ {2}kernel: \S+, without btrfs \(needs a kernel with btrfs/m,
  },
  {
    what: 'a kernel without user namespaces',
    script: 'echo 0 >"$SCRATCH/most"; mount --bind "$SCRATCH/most" /proc/sys/user/max_user_namespaces',
    says: /^ {2}user namespaces: user.max_user_namespaces is 0 \(raise it/m,
  },
  {
    what: 'a kernel without nftables',
    script:
      'printf "#!/bin/sh\\n[ \\$1 = --version ] || { echo Operation not supported >&2; exit 1; }\\n" >"$SCRATCH/nft"\n' +
      'chmod +x "$SCRATCH/nft"; mount --bind "$SCRATCH/nft" "$(command -v nft || echo /usr/sbin/nft)"',
    says: /^ {2}nftables: .*Operation not supported/m,
  },
  {
    what: 'an image folder that is mounted noexec',
    script: 'mount --bind "$ATOLL_IMAGE_DIR" "$ATOLL_IMAGE_DIR"; mount -o remount,bind,noexec "$ATOLL_IMAGE_DIR"',
    says: /^ {2}image folder: .* is mounted noexec \(choose another file system with ATOLL_IMAGE_DIR/m,
  },
  {
    what: 'an image folder below one that is closed to others',
    script:
      'mkdir --parents --mode=755 "$SCRATCH/closed/images"; chmod 711 "$SCRATCH"; chmod 700 "$SCRATCH/closed"\n' +
      'mount --bind "$ATOLL_IMAGE_DIR" "$SCRATCH/closed/images"; export ATOLL_IMAGE_DIR="$SCRATCH/closed/images"',
    says: /^ {2}image folder: \S+\/closed is closed to the users of sandboxes.* \(chmod o\+x \S+\/closed\)$/m,
  },
  {
    what: 'a full disk',
    script: 'mount -t tmpfs -o size=64m tmpfs "$SCRATCH"',
    says: /^ {2}data folder: \d+ MB free in .* \(the disk pool needs 1024 MB/m,
  },
]

for (const { what, script, says, namespaces = [] } of unfit) {
  test(`requirements: ${what} is refused with a reason, by start and by setup, before anything is made`, async () => {
    const runThere = async (...command: string[]) => {
      const scratch = await mkdtemp(join(folder, 'unfit-'))
      const env = { SCRATCH: scratch, ATOLL_DATA_DIR: join(scratch, 'data') }
      return await run([...machine(script, ...namespaces), ...command], env)
    }
    // What is made there is seen there alone.
    const listing = '"$@"; status=$?; echo "made: $(ls -d "$ATOLL_DATA_DIR" 2>/dev/null || echo nothing)"; exit $status'
    const [start, check] = await Promise.all([
      runThere('sh', '-c', listing, 'sh', process.execPath, 'src/server/main.ts'),
      runThere(process.execPath, 'src/server/doctor.ts', '--requirements'),
    ])
    assert.equal(start.status, 2, start.output)
    assert.match(start.output, /^atoll: this machine cannot run sandboxes:$/m)
    assert.match(start.output, says)
    assert.match(start.output, /^made: nothing$/m)
    assert.equal(check.status, 1)
    assert.match(check.output.replaceAll(/^/gm, '  '), says)
  })
}

test('setup: it refuses a container and a full disk before its first step', async () => {
  const images = join(folder, 'images')
  const setup = ['bash', 'scripts/setup.sh']
  const inside = await run([...machine('true', '--pid', '--fork', '--mount-proc'), ...setup], {
    ATOLL_IMAGE_DIR: images,
  })
  assert.deepEqual([inside.status, /^setup: this is a container;/m.test(inside.output)], [1, true], inside.output)
  await mkdir(images)
  await writeFile(join(images, 'mine'), '')
  const full = await run([...machine(`mount -t tmpfs -o size=64m tmpfs ${images}`), ...setup], {
    ATOLL_IMAGE_DIR: images,
  })
  assert.deepEqual([full.status, /and Atoll needs \d+ MB there$/m.test(full.output)], [1, true], full.output)
  assert.deepEqual(await readdir(images), ['mine'])
})

/** A folder with a runc that starts nothing and says so where it is told to, with a path of the host. */
async function refusingRunc(): Promise<string> {
  const bin = await mkdtemp(join(folder, 'bin-'))
  const script = `#!/bin/sh
case "$1" in --version) exec /usr/sbin/runc --version ;; esac
while [ $# -gt 0 ]; do case "$1" in --log) log=$2 ;; --bundle) bundle=$2 ;; esac; shift; done
[ -n "$bundle" ] || exit 1
echo "{\\"level\\":\\"error\\",\\"msg\\":\\"no such luck in $(dirname "$bundle")\\"}" >"$log"
exit 1
`
  await writeFile(join(bin, 'runc'), script, { mode: 0o755 })
  return bin
}
