/**
 * The service as an operator has it, on a machine of its own (`machine.sh`): systemd, pure control groups of version 2, the unit
 * of docs/operate/operations.md, no variable. `ATOLL_MACHINE_KEY` is the key that its first start has printed. The second part, after
 * a restart of the machine, runs where `ATOLL_MACHINE_BEFORE` holds what the first has left.
 */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdir, readFile, readlink, writeFile } from 'node:fs/promises'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { runcState } from '../../src/runtime/oci/runc.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { ApiClient } from '../support/api-client.ts'
import { followReadme } from '../e2e/readme.ts'
import { key, ok, shell } from './service-client.ts'

const runFile = promisify(execFile)
const port = 4100
const url = `http://127.0.0.1:${port}`
const notesFile = '/var/tmp/atoll-machine-notes.json'
const isAfterRestart = process.env['ATOLL_MACHINE_BEFORE'] === 'restart'
const names = new HostNames('/var/lib/atoll')
const api = new ApiClient(url, key)

/** What stays over the restart of the machine. */
interface Notes {
  running: string
  hibernated: string
  /** What the process in the memory of the hibernated one had counted. */
  counted: number
}

/** What a timeline says of a turn. */
interface Turn {
  messageId: string
  files: object | null
  checkpoint: object | null
}

const create = async (body: object = {}): Promise<string> =>
  (await ok(api.post('/api/sandboxes', { timeout: 0, ...body }))).sandboxID

const remove = async (...ids: string[]) => {
  for (const id of ids) await ok(api.delete(`/api/sandboxes/${id}`))
}

const sh = (id: string, script: string): Promise<string> => shell(api, id, script)

/** A process in its memory that counts each time it is asked. */
async function startCounter(id: string): Promise<void> {
  const program = `let n = 0; require('http').createServer((q, s) => s.end(String(++n))).listen(80, '127.0.0.1')`
  await ok(api.post(`/api/sandboxes/${id}/exec`, { cmd: 'node', args: ['-e', program] }))
  await sh(id, 'until curl -s 127.0.0.1:80 >/dev/null; do sleep 0.2; done')
}

const count = async (id: string): Promise<number> => Number(await sh(id, 'curl -s 127.0.0.1:80'))

async function fullCheckpoint(id: string, name: string): Promise<string> {
  const path = `/api/sandboxes/${id}/checkpoints`
  const made = await ok(api.post(path, { name }))
  for (;;) {
    const found = (await ok(api.get(path))).find((item: { id: string }) => item.id === made.id)
    if (found.status === 'ready') return found.id
    assert.equal(found.status, 'processing', found.error)
    await sleep(200)
  }
}

const group = (id: string) => `/sys/fs/cgroup${names.cgroup(id)}`
const setting = async (id: string, file: string) => (await readFile(`${group(id)}/${file}`, 'utf8')).trim()

/** Its processes are in its group, each alone there, under its limits. */
async function assertConfined(id: string, memoryMb: number): Promise<void> {
  const members = (await setting(id, 'cgroup.procs')).split('\n')
  assert.ok(members.length >= 2, `${id}: the guest and what it started are in the group`)
  for (const pid of members)
    assert.equal((await readFile(`/proc/${pid}/cgroup`, 'utf8')).trim(), `0::${names.cgroup(id)}`)
  assert.equal(await setting(id, 'memory.max'), String(memoryMb * 2 ** 20))
  assert.equal(await setting(id, 'memory.swap.max'), '0')
  assert.equal(await setting(id, 'pids.max'), '4096')
  assert.equal(await sh(id, 'cat /proc/self/cgroup'), '0::/')
}

/** Waits for the answer of a server that has just been started. */
async function serves(): Promise<void> {
  for (;;) {
    const answer = await fetch(`${url}/readyz`).catch(() => undefined)
    if (answer?.ok) return
    await sleep(500)
  }
}

const systemctl = (...words: string[]) => runFile('systemctl', words)

describe('the service on a machine of its own', { skip: isAfterRestart }, () => {
  test('doctor: all requirements work, with a start, a fork and a wake', async () => {
    const { stdout } = await runFile('npm', ['run', '--silent', 'doctor'], { cwd: `${import.meta.dirname}/../..` })
    for (const row of ['machine', 'cgroups', 'start', 'network', 'fork', 'wake']) {
      assert.match(stdout, new RegExp(`^${row} +works `, 'm'))
    }
    assert.match(stdout, /^cgroups +works +v2,/m)
  })

  test('database: PostgreSQL is in a control group of its own, outside of that of the service, under its limits', async () => {
    const pid = Number.parseInt(await readFile(`${names.dataDir}/db/postmaster.pid`, 'utf8'), 10)
    assert.equal((await readFile(`/proc/${pid}/cgroup`, 'utf8')).trim(), `0::${names.databaseGroup}`)
    const limit = async (file: string) =>
      (await readFile(`/sys/fs/cgroup${names.databaseGroup}/${file}`, 'utf8')).trim()
    assert.deepEqual([await limit('memory.max'), await limit('pids.max')], [String(2 ** 30), '1024'])
  })

  test('README: its blocks work as written', () => followReadme({ url, key }))

  test('forks: ten of a full checkpoint each have their own control group and limits, also without their source', async () => {
    const source = await create({ memoryMB: 256 })
    await startCounter(source)
    const counted = await count(source)
    const checkpoint = await fullCheckpoint(source, 'ten')
    const { sandboxes } = await ok(api.post(`/api/sandboxes/from-checkpoint/${checkpoint}`, { count: 10, timeout: 0 }))
    const forks: string[] = sandboxes.map(({ sandboxID }: { sandboxID: string }) => sandboxID)
    assert.equal(new Set(forks).size, 10)
    await assertConfined(source, 256)
    for (const id of forks) await assertConfined(id, 256)
    await ok(api.post(`/api/sandboxes/${source}/hibernate`))
    for (const id of forks) assert.equal(await count(id), counted + 1)
    await remove(source)
    for (const id of forks) await assertConfined(id, 256)
    for (const id of forks) assert.equal(await count(id), counted + 2)
    await remove(...forks)
    assert.deepEqual(await groupsLeft([source, ...forks]), [])
  })

  test('hibernation: processes survive it, and the size can change', async () => {
    const id = await create({ memoryMB: 256 })
    await startCounter(id)
    const counted = await count(id)
    await ok(api.post(`/api/sandboxes/${id}/hibernate`))
    assert.deepEqual(await groupsLeft([id]), [])
    assert.equal(await count(id), counted + 1)
    await assertConfined(id, 256)
    await ok(api.post(`/api/sandboxes/${id}/scale`, { memoryMB: 512 }))
    await assertConfined(id, 512)
    const refused = await api.post(`/api/sandboxes/${id}/scale`, { memoryMB: 64 })
    if (refused.status === 200) assert.equal(await setting(id, 'memory.max'), String(64 * 2 ** 20))
    else assert.deepEqual([refused.status, await setting(id, 'memory.max')], [409, String(512 * 2 ** 20)])
    await remove(id)
  })

  test('limits: fork bombs and memory bombs stay within their sandbox, in a fork too', async () => {
    const source = await create({ memoryMB: 256 })
    const checkpoint = await fullCheckpoint(source, 'bomb')
    const fork = (await ok(api.post(`/api/sandboxes/from-checkpoint/${checkpoint}`, { timeout: 0 })))
      .sandboxID as string
    const processes = `
import os, time
made = 0
try:
    while made < 6000:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        made += 1
except OSError:
    pass
print(made, flush=True)
os.system('pkill -9 -f "made < 6000" 2>/dev/null')`
    const hold = `import sys; held = bytearray(600 << 20); print(len(held))`
    for (const id of [source, fork]) {
      const bomb = await api.post(`/api/sandboxes/${id}/exec/run`, {
        cmd: 'python3',
        args: ['-c', processes],
        timeout: 300,
      })
      assert.ok(Number(await setting(id, 'pids.peak')) <= 4096, JSON.stringify(bomb.body))
      const big = await api.post(`/api/sandboxes/${id}/exec/run`, { cmd: 'python3', args: ['-c', hold], timeout: 300 })
      assert.notEqual(big.body.exitCode, 0, 'nobody holds 600 MB in a sandbox of 256')
      const peak = await setting(id, 'memory.peak').catch(() => '0')
      assert.ok(Number(peak) <= 256 * 2 ** 20, `at most ${peak} bytes were held`)
    }
    assert.equal((await fetch(`${url}/healthz`)).status, 200)
    await remove(source, fork)
    assert.deepEqual(await groupsLeft([source, fork]), [])
  })

  test('limits: less memory than processes hold is refused and changes nothing; an OOM kill is reported as such', async () => {
    const id = await create({ memoryMB: 512 })
    const hold = `held = bytearray(b'1') * (300 << 20); print('holds', flush=True); import time; time.sleep(3600)`
    await ok(api.post(`/api/sandboxes/${id}/exec`, { cmd: 'python3', args: ['-c', hold] }))
    while (Number(await setting(id, 'memory.current')) < 300 * 2 ** 20) await sleep(200)
    const refused = await api.post(`/api/sandboxes/${id}/scale`, { memoryMB: 256 })
    assert.deepEqual([refused.status, refused.body.code], [409, 'oom_floor'])
    await assertConfined(id, 512)
    assert.match(await setting(id, 'memory.events'), /^oom_kill 0$/m)
    await sh(id, 'pkill -f bytearray')
    await ok(api.post(`/api/sandboxes/${id}/scale`, { memoryMB: 256 }))
    await api.post(`/api/sandboxes/${id}/exec/run`, {
      cmd: 'python3',
      args: ['-c', `held = bytearray(b'1') * (600 << 20)`],
      timeout: 300,
    })
    assert.match(await setting(id, 'memory.events'), /^oom_kill [1-9]/m)
    process.kill(runcState(`${names.runDir}/runc`, id)?.pid ?? assert.fail('it runs'), 'SIGKILL')
    for (;;) {
      const { status, reason } = await ok(api.get(`/api/sandboxes/${id}`))
      if (status === 'running') await sleep(200)
      else {
        assert.deepEqual([status, reason], ['error', 'oom'])
        break
      }
    }
    await remove(id)
  })

  test('own sizes: programs see those of their sandbox, after a scale, a fork, a hibernation and the end of lxcfs too', async () => {
    const sizes = async (id: string) => {
      const lines = [
        `free -m | awk 'NR == 2 { print $2 }'`,
        'nproc',
        'grep -c ^processor /proc/cpuinfo',
        'cat /sys/fs/cgroup/sandbox/memory.max /sys/fs/cgroup/sandbox/cpu.max',
      ]
      return (await sh(id, lines.join('\n'))).trimEnd().split('\n')
    }
    const small = ['256', '1', '1', String(256 * 2 ** 20), '100000 100000']
    const large = ['512', '2', '2', String(512 * 2 ** 20), '200000 100000']
    const id = await create({ memoryMB: 256, cpuCount: 1 })
    assert.deepEqual(await sizes(id), small)
    await ok(api.put(`/api/sandboxes/${id}/limits`, { memoryMB: 512, cpuPercent: 200 }))
    assert.deepEqual(await sizes(id), large)
    const fork = (await ok(api.post(`/api/sandboxes/from-checkpoint/${await fullCheckpoint(id, 'sizes')}`, {})))
      .sandboxID
    assert.deepEqual(await sizes(fork), large)
    await ok(api.post(`/api/sandboxes/${id}/hibernate`, {}))
    process.kill(Number(await readFile(`${names.runDir}/lxcfs.pid`, 'utf8')), 'SIGKILL')
    await ok(api.post(`/api/sandboxes/${id}/wake`, {}))
    assert.deepEqual(await sizes(id), large)
    // The server notices by itself; the reads of one that runs fail until then.
    while ((await ok(api.post(`/api/sandboxes/${fork}/exec/run`, { cmd: 'free' }))).exitCode !== 0) await sleep(200)
    assert.deepEqual(await sizes(fork), large)
    await remove(id, fork)
  })

  test('time travel: a session is compared with its first turn, taken back to it with its processes, and undone', async () => {
    const counter = `require('http').createServer((q, s) => s.end(String(globalThis.n = (globalThis.n || 0) + 1))).listen(3000, '127.0.0.1')`
    const start = `setsid node -e "${counter}" >/dev/null 2>&1 </dev/null & until curl -sf localhost:3000; do sleep 0.2; done`
    const prompt = `run: echo one >page.txt; ${start}`
    const { id, sandboxId } = await ok(api.post('/v1/sessions', { prompt, user_id: 'ada' }))
    const path = `/v1/sessions/${id}`
    /** The turns, the newest first, once there are so many and each has its files and its checkpoint. */
    const saved = async (turnCount: number) => {
      for (;;) {
        const { turns } = await ok(api.get(`${path}/timeline`))
        if (turns.length === turnCount && turns.every((turn: Turn) => turn.files && turn.checkpoint)) return turns
        await sleep(500)
      }
    }
    const [first] = await saved(1)
    assert.equal(await sh(sandboxId, 'curl -s localhost:3000'), '2')
    const message = 'run: curl -s localhost:3000; echo two >>page.txt; echo kept >/tmp/aside'
    await ok(api.post(`${path}/messages`, { message, user_id: 'ada' }))
    await saved(2)
    const patch = await api.raw('GET', `${path}/diff?against=${first.messageId}`, {
      headers: { accept: 'text/x-diff' },
    })
    assert.match(patch.text, /^diff --git a\/page.txt b\/page.txt[^]*^\+two$/m)
    const standing = () =>
      sh(sandboxId, 'cat /workspace/app/page.txt; cat /tmp/aside 2>/dev/null; curl -s localhost:3000')
    const to = { message_id: first.messageId }
    const { undoCheckpointId } = await ok(api.post(`${path}/rewind`, { user_id: 'ada', to }))
    assert.equal(await standing(), 'one\n2')
    await ok(api.post(`${path}/rewind`, { user_id: 'ada', to: { checkpoint_id: undoCheckpointId } }))
    assert.equal(await standing(), 'one\ntwo\nkept\n4')
    await ok(api.delete(path))
  })

  test('page: browsers get the dashboard and the docs, others a line of JSON', async () => {
    const asked = (path: string, accept: string) => api.raw('GET', path, { headers: { accept }, key: null })
    for (const path of ['/', '/docs', '/docs/api']) {
      const { status, headers } = await asked(path, 'text/html')
      assert.deepEqual([path, status, headers['content-type']], [path, 200, 'text/html; charset=utf-8'])
    }
    assert.match((await asked('/', '*/*')).headers['content-type'] ?? '', /^application\/json/)
  })

  test('systemd: its services see no mount of a sandbox and keep their limits', async () => {
    const found = await servicesOf()
    const id = await create({ memoryMB: 256 })
    await startCounter(id)
    const mounted = await readFile('/proc/self/mountinfo', 'utf8')
    assert.match(mounted, new RegExp(`${names.runDir}/sandboxes/${id}/root `))
    const others = await namespacesOfServices()
    assert.ok(others.length > 0, 'a service has mounts of its own')
    for (const pid of others) {
      assert.doesNotMatch(await readFile(`/proc/${pid}/mountinfo`, 'utf8'), new RegExp(`/sandboxes/${id}/`))
    }
    assert.match((await runFile('systemd-cgls', ['--no-pager', '--all'])).stdout, new RegExp(names.hash))
    const unit = (await systemctl('status', '--no-pager', 'atoll')).stdout
    assert.match(unit, /active \(running\)/)
    assert.doesNotMatch(unit, new RegExp(id), 'processes of a sandbox are not the service’s')
    // A service that starts again copies all mounts that there are.
    await systemctl('restart', 'systemd-timesyncd')
    await ok(api.post(`/api/sandboxes/${id}/hibernate`))
    assert.equal(await sh(id, 'echo woken'), 'woken')
    await systemctl('daemon-reload')
    await assertConfined(id, 256)
    await remove(id)
    assert.deepEqual(await servicesOf(), found)
  })

  test('service: a restart keeps running and hibernated sandboxes as they are, after a daemon-reload too', async () => {
    const [running, hibernated] = [await create({ memoryMB: 256 }), await create({ memoryMB: 256 })]
    for (const id of [running, hibernated]) await startCounter(id)
    await ok(api.post(`/api/sandboxes/${hibernated}/hibernate`))
    const [counted, pids] = [await count(running), await setting(running, 'cgroup.procs')]
    await systemctl('daemon-reload')
    await systemctl('restart', 'atoll')
    await serves()
    assert.equal(await setting(running, 'cgroup.procs'), pids)
    await assertConfined(running, 256)
    assert.equal((await ok(api.get(`/api/sandboxes/${hibernated}`))).status, 'hibernated')
    assert.equal(await count(running), counted + 1)
    const slept = await count(hibernated)
    await sh(running, 'echo kept > /root/file; sync')
    await ok(api.post(`/api/sandboxes/${hibernated}/hibernate`))
    await writeFile(notesFile, JSON.stringify({ running, hibernated, counted: slept } satisfies Notes))
  })
})

describe('the service after a restart of its machine', { skip: !isAfterRestart }, () => {
  test('machine restart: hibernated sandboxes keep their memory, running ones their disk, and new ones start', async () => {
    const { running, hibernated, counted } = JSON.parse(await readFile(notesFile, 'utf8')) as Notes
    assert.equal(await count(hibernated), counted + 1)
    assert.equal(await sh(running, 'cat /root/file'), 'kept')
    for (const id of [running, hibernated]) assert.equal(await setting(id, 'memory.max'), String(256 * 2 ** 20))
    const fresh = await create()
    assert.equal(await sh(fresh, 'id -u'), '0')
    await remove(running, hibernated, fresh)
    assert.deepEqual(await groupsLeft([running, hibernated, fresh]), [])
  })
})

/** The units of services that run, and the limits that systemd has given them. */
async function servicesOf(): Promise<string[]> {
  const { stdout } = await systemctl('list-units', '--type=service', '--state=running', '--plain', '--no-legend')
  const units = stdout.split('\n').flatMap((line) => line.split(' ')[0] || [])
  const properties = '--property=Id,ActiveState,MemoryMax,TasksMax,CPUQuotaPerSecUSec,ControlGroup'
  return Promise.all(units.map(async (unit) => (await systemctl('show', properties, unit)).stdout))
}

/** The first processes of services that have a mount namespace of their own. */
async function namespacesOfServices(): Promise<string[]> {
  const own = await readlink('/proc/self/ns/mnt')
  const { stdout } = await systemctl(
    'show',
    '--property=MainPID',
    '--value',
    'systemd-timesyncd',
    'systemd-resolved',
    'systemd-networkd',
  )
  const pids = stdout.split('\n').filter((pid) => Number(pid) > 1)
  const inOthers = await Promise.all(pids.map(async (pid) => (await readlink(`/proc/${pid}/ns/mnt`)) !== own))
  return pids.filter((_, index) => inOthers[index])
}

/** Those of the sandboxes that have a control group. */
async function groupsLeft(ids: string[]): Promise<string[]> {
  const all = await readdir(`/sys/fs/cgroup${names.cgroupRoot}`)
  return ids.filter((id) => all.includes(id))
}
