/** What the runc driver makes of processes that it did not start itself, and how much of a sandbox it looks at. */
import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { describe, test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import type { HostToolRequest } from '../../src/protocol/hostd.ts'
import { hostTool } from '../../src/runtime/host/testing/host-tool.ts'
import { toolCommand } from '../../src/runtime/hostd/index.ts'
import { imageDir } from '../support/images.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, startPython, succeed } from './driver-shell.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const threads = 1000

describe('the runc driver among other processes', () => {
  const said: string[] = []
  /** Of programs that an earlier server has left; the driver says other things too. */
  const ends = () => said.filter((line) => /^(?:ended|waited) /.test(line))
  const runc = useRunc({}, { log: (message) => said.push(message) })
  const { guest } = runc

  /** In the order of the words, those of the processes of a sandbox. */
  async function linesOf(id: string): Promise<string[]> {
    const pids = await runc.fixture.membersOf(id)
    const texts = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')))
    return texts.map((text, index) => `${pids[index]} ${text.replaceAll('\0', ' ').trim()}`)
  }

  test('strays: programs in a sandbox named like host tools are left alone', async () => {
    const id = await create(runc.driver)
    const { runDir, poolFile, poolDir } = runc.fixture.names
    const runcRoot = `${runDir}/runc`
    const imitations = [
      ['runc', '--root', runcRoot, 'checkpoint', id],
      ['/usr/sbin/runc', '--root', runcRoot, 'restore', id],
      ['btrfs', 'subvolume', 'delete', `${poolDir}/layers/x`],
      ['mount', poolFile, poolDir],
      ['atoll-hostd', 'perform', JSON.stringify({ op: 'make-run-folder', dir: runDir })],
      ['criu', 'swrk', '3'],
      ['criu: restore --rpc'],
    ]
    // In folders that are called the same inside.
    const script = 'mkdir -p "$0" && cd "$0" && exec -a "$1" python3 -c "import time; time.sleep(1000)" "${@:2}"'
    for (const [index, words] of imitations.entries()) {
      const argv = ['/bin/bash', '-c', script, `${runDir}/runc`, ...words]
      await guest(id).spawn({ id: `imitation-${index}`, argv, envs: { PATH: '/usr/bin:/bin' } })
    }
    const imitate = async () => (await linesOf(id)).filter((line) => / -c import time; /.test(line)).toSorted()
    const areCalledSo = async () => {
      const lines = await imitate()
      return imitations.every(([name]) => lines.some((line) => line.includes(` ${name} -c `)))
    }
    await eventually(areCalledSo)
    const imitated = await imitate()
    assert.equal(imitated.length, imitations.length)
    await runc.driver.close()
    assert.deepEqual((await runc.reopen({ sandboxIds: [id] })).running, [id])
    assert.deepEqual(ends(), [], 'it waited for nothing and ended nothing')
    assert.deepEqual(await imitate(), imitated)
    await runc.driver.delete(id)
  })

  test('strays: a left freeze is ended by the next start, and the sandbox runs on', async () => {
    const id = await create(runc.driver)
    await runc.driver.close()
    const groups = (await Cgroups.find()).memberFiles(runc.fixture.names.cgroup(id)).map(dirname)
    const freeze = { op: 'freeze', groups } as const
    const left = await stoppedFreeze(freeze)
    const ended = once(left, 'exit')
    assert.equal((await hostTool.runTool(freeze)).trim(), 'frozen')
    assert.deepEqual((await runc.reopen({ sandboxIds: [id] })).running, [id])
    assert.deepEqual(await ended, [null, 'SIGKILL'])
    assert.match(ends().join('\n'), /^ended \d+ programs that an earlier server had started$/)
    said.splice(0)
    assert.equal(await succeed(guest(id), 'echo alive'), 'alive')
    await runc.driver.delete(id)
  })

  test('strays: a freeze whose hostd is killed ends with its checkpoint', async () => {
    if (!runc.driver.capabilities.fullCheckpoints) return
    const id = await create(runc.driver)
    // It lends its memory for good, so that the freeze tries again and again.
    const program = 'import ctypes, time; ctypes.CDLL(None).vfork() or time.sleep(1000)'
    await guest(id).spawn({ id: 'lender', argv: ['/usr/bin/python3', '-c', program], envs: {} })
    await succeed(guest(id), 'until test $(pgrep -c python3) = 2; do sleep 0.02; done')
    const [freezing, serving] = [`"op":"freeze"`, `serve --socket ${runc.fixture.names.hostdSocket}`]
    const own = runc.fixture.names.cgroup(id)
    /** Stops the freeze of a checkpoint. One that has come to the end of its attempts before is followed by the next checkpoint. */
    const hold = async (): Promise<{ refused: Promise<unknown> }> => {
      const known = new Set(processes())
      const over = new AbortController()
      const refused = runc.driver.checkpoint(id, freshId('cp'), 'full').catch((error: unknown) => error)
      void refused.then(() => over.abort())
      while (!over.signal.aborted) {
        const isOwn = (line: string) => [freezing, own].every((words) => line.includes(words))
        const freeze = processes().find((pid) => !known.has(pid) && isOwn(lineOf(pid)))
        if (freeze !== undefined && (await isStopped(freeze))) return { refused }
        await nextTurn()
      }
      return hold()
    }
    const { refused } = await hold()
    for (const [hostd] of hostLines(serving)) process.kill(hostd, 'SIGKILL')
    assert.match(String(await refused), /freeze: is lost/)
    assert.deepEqual(hostLines(freezing, own), [])
    assert.equal(await succeed(guest(id), 'echo alive'), 'alive')
    await runc.driver.delete(id)
    said.splice(0)
  })

  test('checkpoint: hostd inspects the threads, not the server', async () => {
    if (!runc.driver.capabilities.fullCheckpoints) return
    const [id, checkpoint] = [await create(runc.driver, { memoryMb: 512 }), freshId('cp')]
    const program = `
import threading, time
threading.stack_size(65536)
for _ in range(${threads}): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("ready", flush=True)
time.sleep(1000)`
    await startPython(guest(id), 'threads', program)
    const readsBefore = await readsOfThisProcess()
    await runc.driver.checkpoint(id, checkpoint, 'full')
    const reads = (await readsOfThisProcess()) - readsBefore
    // A file that is read takes two reads or more. What else this process reads meanwhile grows with the time.
    assert.ok(reads < 2 * threads, `${reads} reads for ${threads} threads`)
    await remove(runc.driver, id, checkpoint)
  })
})

/** A freeze that stands still in the middle of its work. One that ends before it is stopped is followed by another. */
async function stoppedFreeze(request: HostToolRequest): Promise<ChildProcess> {
  for (;;) {
    const [tool, ...args] = toolCommand(`${imageDir}/hostd/atoll-hostd`, request)
    const freeze = spawn(tool, args)
    if (freeze.pid !== undefined && (await isStopped(freeze.pid))) return freeze
  }
}

/** Numbers and arguments of the processes that have all of these among their arguments. */
function hostLines(...wanted: string[]): [pid: number, line: string][] {
  const lines = processes().map((pid): [number, string] => [pid, lineOf(pid)])
  return lines.filter(([, line]) => wanted.every((words) => line.includes(words)))
}

function processes(): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((number) => number > 0)
}

/** Empty for a process that has ended. */
function lineOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}

/** Stops a process. False: it has ended before. */
async function isStopped(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 'SIGSTOP')
    for (;;) {
      const [, state] = /\) (\S)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? []
      if (state === 'T') return true
      if (state === 'Z' || state === 'X') return false
      await nextTurn()
    }
  } catch {
    return false
  }
}

/** Calls of read(2) and its like, of all threads. */
async function readsOfThisProcess(): Promise<number> {
  return Number(/^syscr: (\d+)$/m.exec(await readFile('/proc/self/io', 'utf8'))?.[1])
}
