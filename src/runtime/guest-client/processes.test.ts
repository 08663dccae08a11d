import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ProcessInfo, SpawnRequest } from '../../sandbox/ports/guest.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { GuestProcess } from './testing/guest-process.ts'
import { eventually } from '../../lib/testing/eventually.ts'

const machine = await GuestProcess.startForFile()
const { guest } = machine

async function run(
  argv: string[],
  request?: Partial<SpawnRequest>,
): Promise<ProcessInfo & { stdout: string; stderr: string }> {
  const { stdout, stderr, ...ended } = await machine.run(argv, request)
  return { ...ended, stdout: stdout.toString(), stderr: stderr.toString() }
}

function shell(script: string, options: Partial<SpawnRequest> = {}): ReturnType<typeof run> {
  return run(['sh', '-c', script], options)
}

/** Whether a process with this number exists and is not a zombie. */
async function lives(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  return stat !== '' && !/\) Z /.test(stat)
}

test('process: hello reports the version of the guest', async () => {
  assert.match((await guest.hello()).version, /^\d+\.\d+\.\d+$/)
})

test('process: it has its streams, its exit code and its times', async () => {
  const result = await shell('echo out; echo err >&2; exit 3')
  assert.deepEqual([result.stdout, result.stderr, result.exitCode, result.running], ['out\n', 'err\n', 3, false])
  assert.match(result.startedAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
  assert.ok(result.endedAt !== undefined && result.endedAt >= result.startedAt)
  assert.deepEqual(result.argv, ['sh', '-c', 'echo out; echo err >&2; exit 3'])
})

test('process: arguments reach the program untouched', async () => {
  const words = ['', ' a  b ', '$HOME', "'", '"', '\\', '\n', '*', 'ä🐚']
  const result = await run(['sh', '-c', 'for w; do printf "[%s]" "$w"; done', 'sh', ...words])
  assert.equal(result.stdout, words.map((word) => `[${word}]`).join(''))
})

test('process: its environment is the request on top of the defaults', async () => {
  const result = await run(['env'], { envs: { A: 'x=y', LANG: 'de', EMPTY: '' } })
  const lines = result.stdout.trimEnd().split('\n').toSorted()
  assert.deepEqual(
    lines.filter((line) => !line.startsWith('SHELL=')),
    [
      'A=x=y',
      'EMPTY=',
      'HOME=/root',
      'LANG=de',
      'LOGNAME=root',
      'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      'TERM=dumb',
      'USER=root',
    ],
  )
})

test('process: a program is looked up in its own PATH', async () => {
  await writeFile(join(machine.folder, 'own-tool'), '#!/bin/sh\necho mine\n', { mode: 0o755 })
  assert.equal((await run(['own-tool'], { envs: { PATH: `${machine.folder}:/bin` } })).stdout, 'mine\n')
  assert.equal((await run(['own-tool'])).exitCode, 127)
})

test('process: it starts with a clean session, umask, signals, files and limits', async () => {
  const result = await shell('umask; ulimit -n; cat /proc/self/status; ls /proc/self/fd')
  const [umask, files, ...status] = result.stdout.trimEnd().split('\n')
  assert.equal(umask, '0022')
  // The guest raises its own limit, but not its children's.
  const limits = await readFile(`/proc/${machine.pid}/limits`, 'utf8')
  const [, soft, hard] = /Max open files +(\d+) +(\d+)/.exec(limits) ?? []
  assert.ok(Number(files) <= Number(soft) && Number(soft) <= Number(hard), `${files} ${soft} ${hard}`)
  for (const name of ['SigBlk', 'SigIgn', 'SigCgt']) {
    assert.ok(status.includes(`${name}:\t0000000000000000`), name)
  }
  // 3 is the folder that `ls` reads.
  assert.deepEqual(status.slice(-4), ['0', '1', '2', '3'])
  const stat = await run(['cat', '/proc/self/stat'])
  const [pid, , , , group, session] = stat.stdout.split(' ')
  assert.deepEqual([group, session], [pid, pid])
  assert.equal(Number(pid), stat.pid)
})

test('process: cwd defaults to the root and must exist', async () => {
  assert.equal((await run(['pwd'])).stdout, '/\n')
  assert.equal((await run(['pwd'], { cwd: '/usr/bin' })).stdout, '/usr/bin\n')
  for (const cwd of ['/nonexistent', 'usr', '', '/etc/passwd', '/usr\0']) {
    await refuses(run(['pwd'], { cwd }), 'invalid_request', undefined, cwd)
  }
})

test('process: it runs as the requested user, by name or number', async () => {
  const nobody = await shell('id -u; id -g; echo $HOME $USER; echo x > /dev/stdout', { user: 'nobody' })
  assert.equal(nobody.stdout, '65534\n65534\n/nonexistent nobody\nx\n')
  for (const [user, flag, printed] of [
    ['65534', '-u', '65534'],
    ['4242', '-u', '4242'],
    ['4242', '-G', '4242'],
    ['root', '-u', '0'],
  ] as const) {
    assert.equal((await run(['id', flag], { user })).stdout, `${printed}\n`)
  }
  for (const user of ['no-such-user', '', '-1', '99999999999']) {
    await refuses(run(['id'], { user }), 'invalid_request', undefined, user)
  }
})

test('process: a program that cannot be executed ends as in a shell', async () => {
  const missing = await run(['no-such-program'])
  assert.deepEqual([missing.exitCode, missing.stderr, missing.pid], [127, 'no-such-program: command not found\n', 0])
  await writeFile(join(machine.folder, 'plain'), 'x', { mode: 0o644 })
  const plain = await run([join(machine.folder, 'plain')])
  assert.equal(plain.exitCode, 126)
  assert.match(plain.stderr, /cannot execute: permission denied/)
})

test('process: a program that is there and whose interpreter is missing says which', async () => {
  const script = join(machine.folder, 'script')
  await writeFile(script, '#!/opt/python9 -u\nprint()\n', { mode: 0o755 })
  const message = `${script}: its interpreter /opt/python9 does not exist\n`
  const direct = await run([script])
  assert.deepEqual([direct.exitCode, direct.stderr, direct.pid], [127, message, 0])
  const named = await run(['script'], { envs: { PATH: `/none:${machine.folder}` } })
  assert.equal(named.stderr, message.replace(script, 'script'))
  const relative = await run(['./script'], { cwd: machine.folder })
  assert.equal(relative.stderr, message.replace(script, './script'))
  // With the line ends of another system, then with an escape sequence.
  await writeFile(script, '#!/bin/sh\r\necho\r\n', { mode: 0o755 })
  assert.match((await run([script])).stderr, /its interpreter \/bin\/sh\\r does not exist/)
  await writeFile(script, '#!/\u001b[2J\n', { mode: 0o755 })
  // oxlint-disable-next-line no-control-regex -- the escape is what must not come
  assert.doesNotMatch((await run([script])).stderr, /\u001b/)
})

test('process: a wrong request names its field and starts nothing', async () => {
  const known = (await guest.processes()).length
  const wrong: [Partial<SpawnRequest>, RegExp][] = [
    [{ argv: [] }, /^argv/],
    [{ argv: [''] }, /^argv/],
    [{ argv: ['a\0b'] }, /^argv/],
    [{ id: '' }, /^id/],
    [{ id: 'a/b' }, /^id/],
    [{ id: 'x'.repeat(129) }, /^id/],
    [{ envs: { 'A=B': 'x' } }, /^envs/],
    [{ envs: { '': 'x' } }, /^envs/],
    [{ envs: { A: '\0' } }, /^envs/],
    [{ timeoutMs: -1 }, /^timeoutMs/],
    [{ timeoutMs: 0.5 }, /^timeoutMs/],
    [{ keepBytes: 0 }, /^keepBytes/],
    [{ keepBytes: 1 << 30 }, /^keepBytes/],
    [{ pty: { cols: 0, rows: 1 } }, /^cols/],
    [{ pty: { cols: 80, rows: 70_000 } }, /^rows/],
  ]
  for (const [request, message] of wrong) {
    await refuses(
      guest.spawn({ id: 'wrong', argv: ['true'], envs: {}, ...request }),
      'invalid_request',
      message,
      JSON.stringify(request),
    )
  }
  await refuses(run(['true', 'x'.repeat(1 << 20)]), 'too_large')
  assert.equal((await guest.processes()).length, known)
})

test('process: an id is taken until it is released', async () => {
  const spawn = () => guest.spawn({ id: 'once', argv: ['true'], envs: {} })
  await spawn()
  await refuses(spawn(), 'conflict')
  await guest.process('once', 10_000)
  await refuses(spawn(), 'conflict')
  await guest.release('once')
  await spawn()
  await guest.release('once')
})

test('process: an unknown process is not found by any operation', async () => {
  const calls = [
    () => guest.process('nobody'),
    () => guest.output('nobody'),
    () => guest.attach('nobody'),
    () => guest.signal('nobody', 15),
    () => guest.resize('nobody', 80, 24),
    () => guest.release('nobody'),
  ]
  for (const call of calls) await refuses(call(), 'not_found')
})

test('process: a timeout kills its group and other groups of the session, and answers 124', async () => {
  const starts = ['', 'set -m; '].map(async (start, index) => {
    const file = join(machine.folder, `child-${index}`)
    const argv = ['bash', '-c', `${start}sleep 1000 & echo $! > ${file}; wait`]
    // On a busy machine the shell needs seconds until it has a child.
    const { exitCode, timedOut } = await run(argv, { timeoutMs: 5000 })
    assert.deepEqual([exitCode, timedOut], [124, true])
    const child = Number(await readFile(file, 'utf8'))
    assert.ok(child > 0)
    await eventually(async () => !(await lives(child)), { what: 'the child is dead' })
  })
  await Promise.all(starts)
  // A timeout that is not over leaves the exit code.
  assert.equal((await shell('exit 5', { timeoutMs: 60_000 })).exitCode, 5)
  // A process that exits with status 124 by itself has not timed out.
  const own = await shell('exit 124', { timeoutMs: 60_000 })
  assert.deepEqual([own.exitCode, own.timedOut], [124, undefined])
})

test('process: signals reach the group; the exit code is 128 + n', async () => {
  await guest.spawn({ id: 'sig', argv: ['sh', '-c', 'sleep 1000 & wait'], envs: {} })
  assert.equal((await guest.process('sig', 50)).running, true)
  await guest.signal('sig', 15)
  assert.equal((await guest.process('sig', 20_000)).exitCode, 143)
  // After the end it is harmless.
  await guest.signal('sig', 9)
  assert.equal((await guest.process('sig')).exitCode, 143)
  for (const wrong of [0, 65, -1, 1.5]) {
    await refuses(guest.signal('sig', wrong), 'invalid_request')
  }
})

test('process: release kills and removes it', async () => {
  const { pid } = await guest.spawn({ id: 'gone', argv: ['sleep', '1000'], envs: {} })
  await guest.release('gone')
  await refuses(guest.process('gone'), 'not_found')
  await eventually(async () => !(await lives(pid)), { what: 'it is dead' })
})

test('process: a process without clients ends after maxRunAfterDisconnectMs, and not while one is attached', async () => {
  await guest.spawn({ id: 'lonely', argv: ['sleep', '1000'], envs: {}, maxRunAfterDisconnectMs: 4000 })
  const attachment = await guest.attach('lonely')
  await sleep(4500)
  const attached = await guest.process('lonely')
  assert.deepEqual([attached.running, attached.attachedClients], [true, 1])
  attachment.close()
  assert.equal((await guest.process('lonely', 20_000)).exitCode, 137)
})

test('process: background children do not delay its end, and live on', async () => {
  const [go, file] = [join(machine.folder, 'go'), join(machine.folder, 'background')]
  const result = await shell(`(until [ -e ${go} ]; do sleep 0.02; done; echo late; touch ${file}) & echo started`)
  assert.deepEqual([result.exitCode, result.stdout], [0, 'started\n'])
  await writeFile(go, '')
  await eventually(async () => existsSync(file), { what: 'the background job wrote' })
  await guest.release(result.id)
})

test('process: a wait ends after its time, and when it is aborted', async () => {
  await guest.spawn({ id: 'waited', argv: ['sleep', '1000'], envs: {} })
  assert.equal((await guest.process('waited', 50)).running, true)
  const controller = new AbortController()
  const waiting = guest.process('waited', 60_000, controller.signal)
  setTimeout(() => controller.abort(new Error('enough')), 50)
  await assert.rejects(waiting, /enough/)
  await guest.release('waited')
})

test('process: a thousand short processes leave no zombie, no file and no thread', async () => {
  await guest.hello()
  const files = await machine.openFiles()
  const threads = await machine.threads()
  for (let batch = 0; batch < 50; batch++) {
    const ids = Array.from({ length: 20 }, (_, index) => `short-${batch}-${index}`)
    await Promise.all(ids.map((id) => guest.spawn({ id, argv: ['sh', '-c', '(true &) ; true'], envs: {} })))
    for (const id of ids) assert.equal((await guest.process(id, 20_000)).exitCode, 0)
    await Promise.all(ids.map((id) => guest.release(id)))
  }
  await eventually(async () => (await machine.children()).length === 0, { what: 'no child is left' })
  await eventually(async () => (await machine.openFiles()) <= files, { what: 'no file is left' })
  await eventually(async () => (await machine.threads()) <= threads, { what: 'no thread is left' })
})

test('process: the number of ended ones with taken output is bounded', async () => {
  await guest.spawn({ id: 'awaited', argv: ['echo', 'result'], envs: {} })
  for (let batch = 0; batch < 15; batch++) {
    const ids = Array.from({ length: 20 }, (_, index) => `kept-${batch}-${index}`)
    await Promise.all(ids.map((id) => guest.spawn({ id, argv: ['true'], envs: {} })))
    await Promise.all(ids.map((id) => guest.process(id, 20_000).then(() => guest.output(id))))
  }
  await guest.spawn({ id: 'last', argv: ['true'], envs: {} })
  const known = await guest.processes()
  assert.ok(known.length <= 257, `${known.length} are known`)
  assert.ok(known.some((process) => process.id === 'kept-14-19'))
  assert.equal((await guest.output('awaited')).stdout.toString(), 'result\n')
})

test('process: output that was not taken is retained; beyond the bound none is started', async () => {
  await using other = await GuestProcess.start()
  const bytes = 8 * 1024 * 1024
  const go = join(other.folder, 'go')
  // All of them are there before the first has any output.
  const script = `until [ -e ${go} ]; do sleep 0.02; done; exec head -c ${bytes} /dev/zero`
  const spawn = (id: string): Promise<ProcessInfo> =>
    other.guest.spawn({ id, argv: ['sh', '-c', script], envs: {}, keepBytes: bytes })
  const ids = Array.from({ length: 10 }, (_, index) => `large-${index}`)
  await Promise.all(ids.map(spawn))
  await writeFile(go, '')
  for (const id of ids) assert.equal((await other.guest.process(id, 20_000)).exitCode, 0)
  await refuses(spawn('refused'), 'unavailable', /nobody has fetched/)
  for (const id of ids) assert.equal((await other.guest.output(id)).stdout.length, bytes)
  const next = await other.run(['head', '-c', String(bytes), '/dev/zero'], { keepBytes: bytes })
  assert.deepEqual([next.exitCode, next.stdout.length], [0, bytes])
})

test('process: output of an unreported end is retained, acknowledged or not', async () => {
  await using other = await GuestProcess.start()
  const bytes = 16 * 1024 * 1024
  const request = { argv: ['head', '-c', String(bytes), '/dev/zero'], envs: {}, keepBytes: bytes }
  const early = Array.from({ length: 4 }, (_, index) => `early-${index}`)
  for (const id of early) {
    await other.guest.spawn({ id, ...request, keep: 'lossless' })
    await using attachment = await other.guest.attach(id)
    for await (const event of attachment) if (event.type === 'exit') break
  }
  await refuses(other.guest.spawn({ id: 'late', ...request }), 'unavailable')
  await using attachment = await other.guest.attach('early-0')
  await attachment.acknowledge(bytes)
  await eventually(
    async () => {
      return other.guest.spawn({ id: 'late', ...request }).then(
        () => true,
        () => false,
      )
    },
    { what: 'there is room' },
  )
})

test('process: the OOM killer prefers it to the guest', async () => {
  const score = async (pid: number): Promise<number> => Number(await readFile(`/proc/${pid}/oom_score_adj`, 'utf8'))
  const { pid } = await guest.spawn({ id: 'victim', argv: ['sleep', '1000'], envs: {} })
  assert.ok((await score(pid)) > (await score(machine.pid)))
  await guest.release('victim')
})

test('process: a freeze of the sandbox does not count towards a timeout', async () => {
  await using other = await GuestProcess.start()
  const { pid } = await other.guest.spawn({ id: 'frozen', argv: ['sleep', '1000'], envs: {}, timeoutMs: 4000 })
  process.kill(other.pid, 'SIGSTOP')
  await sleep(4500)
  process.kill(other.pid, 'SIGCONT')
  assert.equal((await other.guest.process('frozen', 300)).running, true)
  assert.ok(await lives(pid))
  assert.equal((await other.guest.process('frozen', 20_000)).exitCode, 124)
})

test('process: a guest as PID 1 reaps orphans, and its end ends all', async () => {
  await using other = await GuestProcess.start({ asInit: true })
  const argv = ['sh', '-c', '(setsid sleep 0.1 &) ; (setsid sleep 1000 &) ; echo $PPID']
  const orphans = await other.run(argv)
  assert.deepEqual([orphans.exitCode, orphans.stdout.toString()], [0, '1\n'])
  await eventually(
    async () => {
      const stats = (await other.run(['sh', '-c', 'cat /proc/[0-9]*/stat'])).stdout.toString()
      return stats.match(/\(sleep\) S 1 /g)?.length === 1 && !/\) Z /.test(stats)
    },
    { what: 'the orphan is gone, not a zombie' },
  )
  // Signals from inside do not reach it, and from outside it goes down in order.
  assert.equal((await other.run(['sh', '-c', 'kill -9 1; kill -STOP 1; sleep 0.1'])).exitCode, 0)
  const children = await other.children()
  assert.equal(children.length, 1)
  // It may end before it answers.
  other.guest.spawn({ id: 'term', argv: ['sh', '-c', 'kill -TERM 1; sleep 1000'], envs: {} }).catch(() => {})
  await eventually(async () => !other.alive, { what: 'it has ended' })
})

test('process: at the end of the guest a program has time to finish, and a terminal hangs up', async () => {
  for (const asInit of [false, true]) {
    const other = await GuestProcess.start({ asInit })
    const out = await mkdtemp(join(tmpdir(), 'atoll-end-'))
    const script = `trap 'sleep 0.5; echo done > ${out}/child; exit' TERM; touch ${out}/ready; while :; do sleep 0.05; done`
    // The leader of the second process ends at once. What it leaves behind gets the grace too where the guest is PID 1 and sees it.
    const argv = ['sh', '-c', asInit ? `(${script}) & sleep 1000` : script]
    await other.guest.spawn({ id: 'gentle', argv, envs: {} })
    const onTerminal = `trap '' TERM; trap 'echo done > ${out}/terminal; exit' HUP; touch ${out}/pty; while :; do sleep 0.05; done`
    await other.guest.spawn({ id: 'pty', argv: ['sh', '-c', onTerminal], envs: {}, pty: { cols: 80, rows: 24 } })
    await eventually(async () => existsSync(`${out}/ready`) && existsSync(`${out}/pty`), { what: 'both run' })
    if (asInit) {
      other.guest.spawn({ id: 'end', argv: ['kill', '-TERM', '1'], envs: {} }).catch(() => {})
      await eventually(async () => !other.alive, { what: 'it has ended' })
    }
    await other[Symbol.asyncDispose]()
    assert.equal(await readFile(`${out}/child`, 'utf8'), 'done\n', `as init: ${asInit}`)
    assert.equal(await readFile(`${out}/terminal`, 'utf8'), 'done\n', `as init: ${asInit}`)
    await rm(out, { recursive: true })
  }
})

test('process: the end of the guest ends it', async () => {
  const other = await GuestProcess.start()
  const argv = ['sh', '-c', 'trap "" TERM HUP; while :; do sleep 1; done']
  const { pid } = await other.guest.spawn({ id: 'x', argv, envs: {} })
  await other[Symbol.asyncDispose]()
  await eventually(async () => !(await lives(pid)), { what: 'it is dead' })
  await assert.rejects(other.dial(), /ENOENT/)
})
