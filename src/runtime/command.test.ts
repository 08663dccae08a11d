import assert from 'node:assert/strict'
import { mkdtemp, readlink, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { eventually } from '../lib/testing/eventually.ts'
import { CommandError, type Run, run as runHere } from './command.ts'
import { Hostd } from './hostd/index.ts'

const imageDir = process.env['ATOLL_IMAGE_DIR'] || '/var/lib/atoll/images'

function commandTests(run: Run): void {
  test('standard output comes back, and input goes in', async () => {
    assert.equal(await run(['cat'], { input: 'some\ninput' }), 'some\ninput')
    assert.equal(await run(['printf', '%s', '']), '')
  })

  test('arguments: not read by a shell, and one with a NUL does not become two', async () => {
    const odd = '$(id) "; rm -rf / \n *'
    assert.equal(await run(['printf', '%s', odd]), odd)
    await assert.rejects(run(['echo', 'a\0b']), /NUL/)
  })

  test('errors: exit status and standard error of a failure, and a missing program', async () => {
    const failed = run(['sh', '-c', 'echo why >&2; exit 9'])
    await assert.rejects(failed, (error) => error instanceof CommandError)
    await assert.rejects(failed, { exitCode: 9, stderr: 'why\n' })
    await assert.rejects(run(['atoll-no-such-program']), /is not installed/)
  })

  test('a program that takes too long, writes too much or is aborted is killed', async () => {
    await assert.rejects(run(['sleep', '60'], { timeoutMs: 50 }), /took too long/)
    await assert.rejects(run(['cat', '/dev/zero']), /wrote too much/)
    const abort = new AbortController()
    setTimeout(() => abort.abort(new Error('no longer wanted')), 50)
    await assert.rejects(run(['sleep', '60'], { signal: abort.signal }), /no longer wanted/)
  })

  test('what a killed program has started ends with it, and holds up nobody', async () => {
    const [first, second] = ['61.25', '61.75']
    await assert.rejects(run(['sh', '-c', `sleep ${first} & sleep ${first}`], { timeoutMs: 100 }), /took too long/)
    await assert.rejects(run(['sh', '-c', `sleep ${second} & cat /dev/zero`]), /wrote too much/)
    // The kernel ends a killed process when its turn comes; left alone they would run for a minute.
    const left = () => run(['pgrep', '--full', `^sleep (${first}|${second})$`]).catch(() => '')
    await eventually(async () => (await left()) === '', { timeoutMs: 30_000 })
  })

  test('a killed program whose output somebody else holds does not hold up its caller', async () => {
    const mark = '62.25'
    // In a session of its own the holder is out of reach of the kill.
    const holder = `setsid --fork sleep ${mark}; exec sleep 60`
    const abort = new AbortController()
    const aborted = assert.rejects(run(['sh', '-c', holder], { signal: abort.signal }), /no longer wanted/)
    await eventually(() => run(['pgrep', '--full', `^sleep ${mark}$`]))
    abort.abort(new Error('no longer wanted'))
    await aborted
    await run(['pkill', '--full', `^sleep ${mark}$`])
  })

  test('many at once each get their own answer', async () => {
    const numbers = Array.from({ length: 50 }, (_, index) => String(index))
    assert.deepEqual(await Promise.all(numbers.map((number) => run(['echo', '-n', number]))), numbers)
  })

  test('nothing of our environment but the search path is passed on', async () => {
    process.env['ATOLL_TEST_SECRET'] = 'secret'
    after(() => delete process.env['ATOLL_TEST_SECRET'])
    const names = (await run(['env'])).split('\n').map((line) => line.split('=')[0])
    assert.deepEqual(new Set(names), new Set(['LC_ALL', 'PATH', '']))
  })
}

describe('started by this process', () => commandTests(runHere))

describe('started by hostd', () => {
  let folder: string
  let hostd: Hostd
  const run: Run = (argv, options) => hostd.run(argv, options)
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'atoll-command-'))
    hostd = new Hostd({ socket: join(folder, 'hostd.sock'), log: () => undefined })
    await hostd.open(join(imageDir, 'hostd/atoll-hostd'))
  })
  after(async () => {
    await hostd.close()
    await rm(folder, { recursive: true })
  })

  test('hostd is the parent', async () => {
    const parent = (await run(['sh', '-c', 'echo $PPID'])).trim()
    assert.match(await readlink(`/proc/${parent}/exe`), /atoll-hostd$/)
  })
  commandTests(run)
})
