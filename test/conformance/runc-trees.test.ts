/** Disks that are read from outside, however hostile or large what they hold is. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test, type TestContext } from 'node:test'
import { promisify } from 'node:util'
import { isServiceError } from '../../src/errors.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { comparedFilesMax, type DiskRef, type DiskTrees, patchBytesMax } from '../../src/sandbox/ports/disk-trees.ts'
import { type LiveProcess, liveProcesses } from '../support/host-processes.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, specOf, succeed } from './driver-shell.ts'

const run = promisify(execFile)
const folder = '/workspace/app'

describe('disk trees on runc, hostile and large', () => {
  const runc = useRunc()
  const trees = (): DiskTrees => runc.driver.trees ?? assert.fail('the driver reads no disks')
  const inside = (id: string, script: string, where = folder) =>
    succeed(runc.guest(id), `mkdir -p '${where}' && cd '${where}' && ${script}`)
  const said = async (from: DiskRef, to: DiskRef, where = folder) =>
    (await trees().compare(from, to, { folder: where })).files.map(({ change, path }) => `${change} ${path}`)
  const patchOf = async (from: DiskRef, to: DiskRef) =>
    Buffer.concat(await Array.fromAsync(trees().patch(from, to, { folder })))

  /** A sandbox, and a checkpoint of it between two scripts. Afterwards nothing of a comparison may be left on the host. */
  const changed = async (t: TestContext, { before = 'true', after = 'true', where = folder, diskMb = 256 }) => {
    const [id, checkpointId] = [await create(runc.driver, { diskMb }), freshId('cp')]
    t.after(async () => {
      const { names } = runc.fixture
      const left = (await readdir(`${names.runDir}/trees`)).filter((name) => name.startsWith('tree-'))
      assert.deepEqual(left, [])
      assert.deepEqual(await readdir(`${names.poolDir}/scratch`), [])
      assert.doesNotMatch(await readFile('/proc/self/mounts', 'utf8'), new RegExp(`${names.runDir}/trees`))
      await remove(runc.driver, id, checkpointId)
    })
    await inside(id, before, where)
    await runc.driver.checkpoint(id, checkpointId, 'disk_only')
    await inside(id, after, where)
    return { id, was: { checkpointId }, now: { sandboxId: id } }
  }

  test('trees: the patch makes one tree of the other, whatever names its files have', async (t) => {
    const odd = `printf 'a\\nb\\n' >"$(printf 'new\\nline')"; echo q >'quo"te'; echo c >':(exclude)x'; echo c >':!y'; echo d >-z
      echo u >"$(printf 'bytes\\377')"; echo u >"$(printf 'bytes\\376')"; printf 1 >'back\\slash'; echo e >é; ln -s loop loop; mkdir -p a/b && echo x >'a/b/ space '`
    const { was, now } = await changed(t, {
      before: 'echo gone >gone && echo 1 >file',
      after: `rm gone; echo 2 >file; ${odd}`,
    })
    const patch = await patchOf(was, now)
    const place = await mkdtemp(join(tmpdir(), 'atoll-patch-'))
    t.after(() => rm(place, { recursive: true }))
    await writeFile(join(place, 'patch'), patch)
    await run(
      'sh',
      [
        '-c',
        `mkdir one two && cd one && echo gone >gone && echo 1 >file && git apply ../patch && cd ../two && echo 2 >file && ${odd}`,
      ],
      {
        cwd: place,
      },
    )
    await run('diff', ['--recursive', '--no-dereference', 'one', 'two'], { cwd: place })
    assert.equal((await said(was, now)).length, 13)
    assert.equal((await trees().compare(was, now, { folder })).addedLines, 13)
  })

  test('trees: a folder of any name is read, and one that a link leads to is that of the sandbox', async (t) => {
    const where = '/workspace/é ö'
    const { id, was, now } = await changed(t, { before: 'echo 1 >file', after: 'echo 2 >file', where })
    assert.deepEqual(await said(was, now, where), ['modified file'])
    await succeed(runc.guest(id), 'ln -s /etc /workspace/etc && ln -s ../../../../../proc/self/root/etc /workspace/up')
    const files = await trees().readFolder(now, '/workspace/etc', { filesMax: 5000, bytesMax: 5e7 })
    const own = files.find(({ path }) => path === 'hostname')
    assert.notEqual(own === undefined ? '' : Buffer.from(own.content).toString().trim(), hostname())
    assert.deepEqual(await trees().readFolder(now, '/workspace/up', { filesMax: 5000, bytesMax: 5e7 }), [])
  })

  test('trees: a folder that becomes a link, or a file, is told', async (t) => {
    const { was, now } = await changed(t, {
      before: 'mkdir d e && echo 1 >d/x && echo 1 >e/x && echo "*.log" >d/.gitignore && echo "*.log" >e/.gitignore',
      after: 'rm -r d e && ln -s /etc d && echo 1 >e',
    })
    const forward = ['added d', 'deleted d/.gitignore', 'deleted d/x', 'added e', 'deleted e/.gitignore', 'deleted e/x']
    // Files of one content are one that was renamed.
    assert.ok((await said(was, now)).every((line) => forward.includes(line) || line === 'renamed e'))
    assert.ok((await said(now, was)).some((line) => line.endsWith(' d/x')))
  })

  test('trees: a .gitignore that is a pipe, a link, endless or a folder counts for nothing and stops nothing', async (t) => {
    const { was, now } = await changed(t, {
      before:
        'echo 1 >file && mkdir pipe link endless folder good && for d in *; do test -d $d && echo 1 >$d/x; done; true',
      after: `for d in pipe link endless folder good; do echo 2 >$d/x; done; echo 2 >file
        mkfifo pipe/.gitignore; echo x >/srv/all; ln -s /srv/all link/.gitignore; truncate -s 1T endless/.gitignore; mkdir folder/.gitignore; printf x >good/.gitignore`,
    })
    const began = performance.now()
    assert.deepEqual(await said(was, now), [
      'added endless/.gitignore',
      'modified endless/x',
      'modified file',
      'modified folder/x',
      'added good/.gitignore',
      'added link/.gitignore',
      'modified link/x',
      'modified pipe/x',
    ])
    assert.ok(performance.now() - began < 120_000)
  })

  test('trees: what lies deeper than a path reaches is left out', async (t) => {
    const deep = `python3 -c "
import os
for i in range(40):
    os.mkdir('d' * 200); os.chdir('d' * 200)
open('file', 'w').write('x')"`
    const { id, was, now } = await changed(t, { before: 'echo 1 >file', after: `echo 2 >file; ${deep}` })
    assert.deepEqual(await said(was, now), ['modified file'])
    assert.equal((await trees().readFolder(now, folder, { filesMax: 10, bytesMax: 100 })).length, 1)
    await inside(id, 'rm -r d*')
  })

  test('trees: two forks of a checkpoint are compared by what they hold, and each goes on as it was', async (t) => {
    const { was } = await changed(t, { before: 'echo 0 >same; echo 0 >differs; echo 0 >untouched' })
    const forks = [freshId('sb'), freshId('sb')] as const
    for (const id of forks) await runc.driver.create(specOf(id, { from: was }))
    t.after(() => remove(runc.driver, ...forks))
    const [one, other] = forks
    await Promise.all([inside(one, 'echo 1 >same; echo 1 >differs'), inside(other, 'echo 1 >same; echo 2 >differs')])
    await runc.driver.hibernate(other)
    assert.deepEqual(await said({ sandboxId: one }, { sandboxId: other }), ['modified differs'])
    assert.deepEqual(await said({ sandboxId: other }, was), ['modified differs', 'modified same'])
    assert.equal(await runc.driver.usage(other), undefined)
    assert.equal(await succeed(runc.guest(one), `cat ${folder}/differs`), '1')
  })

  test('trees: many files and long ones are compared within bounds', async (t) => {
    const many = (text: string) => `python3 -c "
import os
for d in range(50):
    os.makedirs('m/%d' % d, exist_ok=True)
    for f in range(100): open('m/%d/%d' % (d, f), 'w').write(${text})"`
    const { id, was, now } = await changed(t, { before: many("'%d %d' % (d, f)"), after: 'echo 1 >new', diskMb: 2048 })
    const timed = async <Result>(what: string, work: () => Promise<Result>) => {
      const began = performance.now()
      const result = await work()
      t.diagnostic(`${what}: ${Math.round(performance.now() - began)} ms`)
      return result
    }
    await timed('5 000 files, cold', () => said(was, now))
    assert.deepEqual(await timed('5 000 files', () => said(was, now)), ['added new'])
    await inside(id, many("'%d %d\\\\n' % (d, f)"))
    await timed('5 000 changed files, not flushed', () => said(was, now))
    const compared = await timed('5 000 changed files', () => trees().compare(was, now, { folder }))
    assert.deepEqual([compared.isCut, compared.files.length, compared.addedLines], [true, comparedFilesMax, 5_001])
    const empty = freshId('cp')
    await inside(id, 'rm -r m new')
    await runc.driver.checkpoint(id, empty, 'disk_only')
    t.after(() => runc.driver.deleteCheckpoint(empty))
    await inside(
      id,
      'seq 1 2000000 >lines && truncate -s 1T sparse && for i in 1 2 3 4 5 6 7 8 9; do yes "line of text $i, which is about as long as lines are in programs" | head -c 8000000 >text$i; done',
    )
    const long = await timed('long files', () => trees().compare({ checkpointId: empty }, now, { folder }))
    const binary = long.files.filter(({ isBinary }) => isBinary).map(({ path }) => path)
    assert.deepEqual(binary, ['lines', 'sparse'])
    const patch = await timed('a long patch', () => patchOf({ checkpointId: empty }, now))
    assert.ok(patch.length <= patchBytesMax + 200, String(patch.length))
    assert.match(patch.subarray(-200).toString(), /\n\\ The patch ends here: it is longer than \d+ bytes\.\n$/)
  })

  test('trees: a comparison of small folders is quick', async (t) => {
    const { was, now } = await changed(t, { before: 'seq 1 100 >a', after: 'seq 1 101 >a' })
    const times: number[] = []
    for (let count = 0; count < 5; count += 1) {
      const began = performance.now()
      assert.deepEqual(await said(was, now), ['modified a'])
      times.push(Math.round(performance.now() - began))
    }
    t.diagnostic(`small folders: ${times.join(', ')} ms`)
  })

  test('trees: a reader that is killed, or no longer wanted, leaves nothing, and no other id enters its folders', async (t) => {
    const { was, now } = await changed(t, { after: 'cp -a /usr . ', diskMb: 2048 })
    const isReader = ({ command, groups }: LiveProcess) =>
      command.includes('/program.ts') && groups.includes(`${runc.fixture.names.workGroupRoot}/tree-`)
    const readers = async () => (await liveProcesses()).filter(isReader).map(({ pid }) => pid)
    const compared = trees().compare(was, now, { folder })
    const outcome = compared.then(String, (error: unknown) => error)
    await eventually(async () => (await readers()).length > 0)
    const trace = `${runc.fixture.names.runDir}/trees`
    const [name = ''] = (await readdir(trace)).filter((one) => one.startsWith('tree-'))
    assert.deepEqual([(await stat(trace)).mode & 0o777, (await stat(`${trace}/${name}`)).mode & 0o777], [0o711, 0o710])
    for (const pid of await readers()) process.kill(pid, 'SIGKILL')
    assert.ok(isServiceError(await outcome, 'unavailable'))
    const stop = new AbortController()
    const aborted = trees().compare(was, now, { folder, signal: stop.signal })
    aborted.catch(() => undefined)
    await eventually(async () => (await readers()).length > 0)
    stop.abort()
    await assert.rejects(aborted, { name: 'AbortError' })
    assert.deepEqual(await readers(), [])
  })
})
