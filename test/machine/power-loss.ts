/**
 * What a loss of power leaves of saved memory and its disk. It runs beside the machine of `machine.sh`, which has been started and
 * whose service is enabled, and kills its emulator: what the kernel inside has given to the disk stays, what it still held in its
 * cache is gone. `MACHINE`, `PORT` and `SUITE` are those of `machine.sh`, `ATOLL_MACHINE_KEY` is a key of the service.
 *
 * In two sandboxes a process counts, in its memory and in a file, and notes when these are not the same any more. One brings
 * each count to the disk itself, so that old memory on a newer disk shows; the other never does, so that newer memory on an old
 * disk shows. After each loss both must start, with memory and disk of one moment, or without the memory and with words for it.
 */
import assert from 'node:assert/strict'
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { ApiClient } from '../support/api-client.ts'
import { freePort } from '../support/listen.ts'
import { key, ok, shell } from './service-client.ts'

const runFile = promisify(execFile)
const script = `${import.meta.dirname}/machine.sh`
const suite = process.env['SUITE'] ?? 'trixie'
const folder = process.env['MACHINE'] ?? `/var/tmp/atoll-machine-${suite}`
/** Counts between two looks at whether a sandbox still counts. */
const settledCounts = 5
const largeFileMiB = 600

const counter = (isSynced: boolean) => `
import os, time
fd = os.open('/root/counter', os.O_RDWR | os.O_CREAT, 0o600)
n = int(os.pread(fd, 16, 0) or b'0')
while True:
    on_disk = int(os.pread(fd, 16, 0) or b'0')
    if on_disk != n:
        note = os.open('/root/disagreement', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(note, b'memory %d, disk %d\\n' % (n, on_disk))
        os.fsync(note)
    n += 1
    os.pwrite(fd, b'%-16d' % n, 0)
    ${isSynced ? 'os.fsync(fd)' : ''}
    time.sleep(0.05)
`

interface Counting {
  id: string
  isSynced: boolean
}

let api: ApiClient
let tunnel: ChildProcess | undefined
let sandboxes: Counting[] = []
/** For docs/operate/reliability.md. */
const findings: string[] = []

const inMachine = async (command: string): Promise<string> =>
  (await runFile(script, ['ssh', command], { maxBuffer: 64 * 2 ** 20 })).stdout.trim()

/** Waits for the service, by a way to it that ends with the machine. */
async function reach(): Promise<void> {
  tunnel?.kill()
  const port = await freePort()
  tunnel = spawn(script, ['ssh', '-N', '-L', `${port}:127.0.0.1:4100`], { stdio: 'ignore' })
  api = new ApiClient(`http://127.0.0.1:${port}`, key)
  while (!(await fetch(`${api.origin}/readyz`).catch(() => undefined))?.ok) {
    assert.equal(tunnel.exitCode, null, 'the way to the machine has ended')
    await sleep(500)
  }
}

/** The power is gone at once, and comes back. */
async function cut(): Promise<void> {
  const pid = Number(await readFile(`${folder}/pid`, 'utf8'))
  assert.match(await readFile(`/proc/${pid}/cmdline`, 'utf8'), /^qemu-system/)
  process.kill(pid, 'SIGKILL')
  const isThere = () =>
    readFile(`/proc/${pid}/cmdline`, 'utf8').then(
      (line) => line !== '',
      () => false,
    )
  while (await isThere()) await sleep(20)
  await runFile(script, ['start'])
  await reach()
}

const sh = (id: string, command: string): Promise<string> => shell(api, id, command)

const hibernate = (id: string) => ok(api.post(`/api/sandboxes/${id}/hibernate`))
const wake = (id: string) => ok(api.post(`/api/sandboxes/${id}/wake`, {}))
const isCounting = async (id: string): Promise<boolean> =>
  (await sh(id, 'pgrep --full [c]ounter.py >/dev/null && echo yes || true')) === 'yes'

/** Waits until it has counted for a while. */
async function settle(id: string): Promise<void> {
  const now = `cat /root/counter`
  await sh(id, `from=$(${now}); until [ $(${now}) -ge $((from + ${settledCounts})) ]; do sleep 0.1; done`)
}

async function startCounting({ id, isSynced }: Counting): Promise<void> {
  await sh(id, `cat >/root/counter.py <<'END'\n${counter(isSynced)}\nEND\nrm -f /root/counter /root/disagreement`)
  await ok(api.post(`/api/sandboxes/${id}/exec`, { cmd: 'python3', args: ['/root/counter.py'] }))
  await sh(id, 'until [ -s /root/counter ]; do sleep 0.1; done')
  await settle(id)
}

/** Both count, their files so far are on the disk, and so is their memory when they are `asleep`. */
async function prepare(state: 'awake' | 'asleep'): Promise<void> {
  for (const sandbox of sandboxes) {
    await sh(sandbox.id, 'rm -f /root/disagreement')
    if (!(await isCounting(sandbox.id))) await startCounting(sandbox)
  }
  await inMachine('sync')
  for (const { id } of sandboxes) await settle(id)
  if (state === 'awake') return
  for (const { id } of sandboxes) await hibernate(id)
  await inMachine('sync')
}

/** Waits in the machine, where it takes no time to tell, and returns what the command prints. */
const watch = (command: string) => inMachine(`cd /run/atoll-*/pool && ${command}`)
const goesOn = (id: string) => watch(`until [ -e memory/resumed/${id} ]; do sleep 0.02; done`)

/** Both start, and memory and disk are of one moment, or the memory was given up with words for it. */
async function assertWhole(moment: string): Promise<void> {
  const faults: string[] = []
  for (const { id, isSynced } of sandboxes) {
    const { status, reason } = await ok(api.get(`/api/sandboxes/${id}`))
    assert.equal(status, 'hibernated', `${id} ${reason}`)
    await wake(id)
    const goesOnCounting = await isCounting(id)
    if (goesOnCounting) await settle(id)
    const disagreement = await sh(id, 'cat /root/disagreement 2>/dev/null || true')
    const kept = goesOnCounting ? 'the memory is back' : `anew on its disk (${reason ?? 'nothing is said'})`
    const finding = `${moment}, ${isSynced ? 'synced' : 'unsynced'}: ${kept}; ${disagreement || 'no disagreement'}`
    findings.push(finding)
    if (disagreement !== '' || (!goesOnCounting && reason === undefined)) faults.push(finding)
  }
  assert.deepEqual(faults, [])
}

describe('a loss of power', () => {
  before(async () => {
    await reach()
    for (const isSynced of [true, false]) {
      const { sandboxID: id } = await ok(api.post('/api/sandboxes', { timeout: 0, memoryMB: 256 }))
      sandboxes.push({ id, isSynced })
    }
  })

  after(async () => {
    for (const { id } of sandboxes) await ok(api.delete(`/api/sandboxes/${id}`))
    tunnel?.kill()
    process.stdout.write(`${findings.join('\n')}\n`)
  })

  test('power loss: right after the answer of a hibernation', async () => {
    await prepare('awake')
    for (const { id } of sandboxes) await hibernate(id)
    await cut()
    await assertWhole('after a hibernation')
  })

  test('power loss: after the images have reached the disk and before the files of the sandbox have', async () => {
    await prepare('awake')
    const [synced, { id }] = sandboxes as [Counting, Counting]
    await hibernate(synced.id)
    await inMachine('sync')
    // What is written first is flushed first: so the large file, for seconds, and then what was counted.
    const large = `dd if=/dev/zero of=/root/large bs=1M count=${largeFileMiB} status=none`
    await sh(id, `pkill --full -STOP [c]ounter.py; ${large}; pkill --full -CONT [c]ounter.py`)
    await settle(id)
    // Meanwhile the kernel writes the images, for whatever reason, and a checkpoint of another sandbox commits what is written.
    const isSaved = `until grep -q bytes /var/lib/atoll/sandboxes/${id}.json; do sleep 0.02; done`
    const write = `for image in memory/saved/${id}.*/*; do dd if=$image iflag=nocache count=0 status=none; done; sleep 0.2`
    const commit = `btrfs subvolume snapshot -r sandboxes/${synced.id} cut && btrfs subvolume delete cut`
    await Promise.all([hibernate(id), watch(`${isSaved}; ${write}; ${commit}`)])
    await cut()
    await assertWhole('images first')
    await sh(id, 'rm -f /root/large')
  })

  test('power loss: right after the answers of a full and a disk-only checkpoint', async () => {
    await prepare('awake')
    const [, { id }] = sandboxes as [Counting, Counting]
    const path = `/api/sandboxes/${id}/checkpoints`
    const made = async (kind: string): Promise<string> => {
      const { id: checkpoint } = await ok(api.post(path, { name: kind.replace('_', '-'), kind }))
      while ((await stateOf(checkpoint)).status === 'processing') await sleep(100)
      assert.equal((await stateOf(checkpoint)).status, 'ready')
      return checkpoint
    }
    const stateOf = async (checkpoint: string) =>
      (await ok(api.get(path))).find((item: { id: string }) => item.id === checkpoint) as {
        status: string
        error?: string
      }
    const counted = Number(await sh(id, 'cat /root/counter'))
    const [full, disk] = [await made('full'), await made('disk_only')]
    await cut()
    const fork = async (from: string): Promise<string> =>
      (await ok(api.post(`/api/sandboxes/from-checkpoint/${from}`, { timeout: 0 }))).sandboxID
    const ofDisk = await fork(disk)
    assert.ok(Number(await sh(ofDisk, 'cat /root/counter')) >= counted, 'what was written and not synced is there')
    const { status, error } = await stateOf(full)
    findings.push(`after a full checkpoint: ${status}${error === undefined ? '' : ` (${error})`}`)
    if (status === 'ready') {
      const ofMemory = await fork(full)
      await settle(ofMemory)
      assert.equal(await sh(ofMemory, 'cat /root/disagreement 2>/dev/null || true'), '')
      await ok(api.delete(`/api/sandboxes/${ofMemory}`))
    } else assert.match(error ?? '', /quarantine/)
    await ok(api.delete(`/api/sandboxes/${ofDisk}`))
    await assertWhole('after checkpoints')
  })

  test('power loss: after the processes of a wake have resumed, before its answer', async () => {
    await prepare('asleep')
    const [{ id }] = sandboxes as [Counting]
    const waking = api.post(`/api/sandboxes/${id}/wake`, {}).catch(() => undefined)
    await goesOn(id)
    // It counts on, and brings that to the disk, by now or in a moment.
    await sleep(200)
    await cut()
    await waking
    await assertWhole('in a wake')
  })

  test('power loss: right after the answer of a wake', async () => {
    await prepare('asleep')
    for (const { id } of sandboxes) await wake(id)
    await cut()
    await assertWhole('after a wake')
  })

  test('power loss: some seconds after a wake, with writes', async () => {
    await prepare('asleep')
    for (const { id } of sandboxes) await wake(id)
    for (const { id } of sandboxes) await settle(id)
    await sleep(5_000)
    await cut()
    await assertWhole('five seconds after a wake')
  })
})
