/** Disks that are read from outside: what git would say of two folders, whatever these hold. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { isServiceError } from '../../src/errors.ts'
import type { DiskRef, DiskTrees } from '../../src/sandbox/ports/disk-trees.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, remove, succeed } from './driver-shell.ts'

const run = promisify(execFile)
const folder = '/workspace/app'

describe('disk trees on runc', () => {
  const runc = useRunc()
  const { guest } = runc
  const trees = (): DiskTrees => runc.driver.trees ?? assert.fail('the driver reads no disks')
  const inside = (id: string, script: string) => succeed(guest(id), `mkdir -p ${folder} && cd ${folder} && ${script}`)
  const said = async (from: DiskRef | undefined, to: DiskRef) =>
    (await trees().compare(from, to, { folder })).files.map(
      ({ change, path, oldPath, isBinary, addedLines, removedLines }) =>
        `${change} ${oldPath === undefined ? '' : `${oldPath} → `}${path} ${isBinary ? 'binary' : `+${addedLines} −${removedLines}`}`,
    )
  const patchOf = async (from: DiskRef, to: DiskRef) =>
    Buffer.concat(await Array.fromAsync(trees().patch(from, to, { folder }))).toString()
  /** Nothing is left mounted, running or in the pool. */
  const assertClean = async () => {
    assert.deepEqual(
      (await readdir(`${runc.fixture.names.runDir}/trees`)).filter((name) => name.startsWith('tree-')),
      [],
    )
    assert.doesNotMatch(await readFile('/proc/self/mounts', 'utf8'), new RegExp(`${runc.fixture.names.runDir}/trees`))
    assert.deepEqual(await readdir(`${runc.fixture.names.poolDir}/scratch`), [])
  }

  test('trees: added, changed, deleted and renamed files, modes, links and binary ones are told, and the patch makes one of the other', async () => {
    const id = await create(runc.driver)
    const checkpointId = `cp-${id}`
    const long = 'seq 1 200 >moved.txt'
    await inside(
      id,
      `${long}; echo one >changed; echo gone >gone; echo x >mode; ln -s /etc/passwd link; head -c 3000 /dev/urandom >image`,
    )
    await runc.driver.checkpoint(id, checkpointId, 'disk_only')
    await inside(
      id,
      `git init -q . && echo made >made && echo two >>changed && rm gone && mkdir -p sub && mv moved.txt sub/to.txt && chmod +x mode && ln -sf /etc/shadow link &&
       head -c 3000 /dev/urandom >image && echo left >left-out && echo left-out >.gitignore && mkdir -p node_modules/a && echo 1 >node_modules/a/b && echo node_modules >>.gitignore &&
       printf 'a b' >"$(printf 'odd\\n"name')"`,
    )
    const [then, now] = [{ checkpointId }, { sandboxId: id }]
    assert.deepEqual(await said(then, now), [
      'added .gitignore +2 −0',
      'modified changed +1 −0',
      'deleted gone +0 −1',
      'modified image binary',
      'modified link +1 −1',
      'added made +1 −0',
      'modified mode +0 −0',
      'added odd\n"name +1 −0',
      'renamed moved.txt → sub/to.txt +0 −0',
    ])
    const back = await said(now, then)
    assert.ok(back.includes('deleted made +0 −1') && back.includes('added gone +1 −0'))
    assert.deepEqual(await said(then, then), [])
    assert.deepEqual(await said(undefined, then), [
      'added changed +1 −0',
      'added gone +1 −0',
      'added image binary',
      'added link +1 −0',
      'added mode +1 −0',
      'added moved.txt +200 −0',
    ])
    const patch = await patchOf(then, now)
    assert.match(patch, /^Binary files a\/image and b\/image differ$/m)
    const place = await mkdtemp(join(tmpdir(), 'atoll-patch-'))
    await run(
      'sh',
      ['-c', 'seq 1 200 >moved.txt; echo one >changed; echo gone >gone; echo x >mode; ln -s /etc/passwd link'],
      { cwd: place },
    )
    await writeFile(join(place, 'patch'), patch)
    await run('git', ['apply', '--exclude=image', 'patch'], { cwd: place })
    assert.equal(await readFile(join(place, 'changed'), 'utf8'), 'one\ntwo\n')
    assert.equal((await readFile(join(place, 'sub/to.txt'), 'utf8')).split('\n').length, 201)
    await rm(place, { recursive: true })
    // A sandbox that sleeps is read too, and sleeps on.
    await runc.driver.hibernate(id)
    assert.equal((await said(then, now)).length, 9)
    assert.equal(await runc.driver.usage(id), undefined)
    await assertClean()
    await runc.driver.deleteCheckpoint(checkpointId)
    await remove(runc.driver, id)
  })

  test('trees: nothing of a repository runs, and no link leads out of the sandbox', async () => {
    const id = await create(runc.driver)
    const checkpointId = `cp-${id}`
    await inside(id, 'echo 1 >file')
    await runc.driver.checkpoint(id, checkpointId, 'disk_only')
    const touch = (what: string) => `touch /tmp/ran-${what} /out/ran-${what}; cat`
    await inside(
      id,
      `git init -q . && git config core.fsmonitor '${touch('monitor')}' && git config filter.evil.clean '${touch('clean')}' && git config filter.evil.smudge '${touch('smudge')}' &&
       git config diff.evil.textconv '${touch('conv')}' && git config diff.evil.command '${touch('diff')}' && git config core.hooksPath /workspace/app/hooks &&
       echo '* filter=evil diff=evil ident' >.gitattributes && echo '$Id$ 2' >file && mkdir nested && cd nested && git init -q . && echo in >inner && git config core.fsmonitor '${touch('inner')}' &&
       cd .. && mkdir outer && echo 'gitdir: /etc' >outer/.git && echo out >outer/inner && mkfifo pipe && truncate -s 1T sparse && echo secret >closed && chmod 000 closed && chown 1000 closed`,
    )
    const [then, now] = [{ checkpointId }, { sandboxId: id }]
    const changes = await said(then, now)
    assert.deepEqual(changes, [
      'added .gitattributes +1 −0',
      'added closed +1 −0',
      'modified file +1 −1',
      'added nested/inner +1 −0',
      'added outer/inner +1 −0',
      'added sparse binary',
    ])
    assert.match(await patchOf(then, now), /^\+\$Id\$ 2$/m)
    assert.equal((await succeed(guest(id), 'ls /tmp/ran-* 2>/dev/null | wc -l')).trim(), '0')
    await inside(
      id,
      `cd / && mv ${folder} /srv/real && ln -s /../../srv/real ${folder} && ln -s /etc/hostname /srv/real/host`,
    )
    assert.ok((await said(then, now)).includes('added host +1 −0'))
    const files = await trees()
      .readFolder(now, folder, { filesMax: 10, bytesMax: 1e13 })
      .catch((error: unknown) => error)
    assert.ok(isServiceError(files))
    await assertClean()
    await runc.driver.deleteCheckpoint(checkpointId)
    await remove(runc.driver, id)
  })

  test('trees: the files of a folder are read with what they hold, within bounds', async () => {
    const id = await create(runc.driver)
    await inside(id, 'mkdir -p a/b && echo deep >a/b/file && printf x >top && chmod 600 top && ln -s top link')
    const now = { sandboxId: id }
    const read = await trees().readFolder(now, folder, { filesMax: 10, bytesMax: 100 })
    assert.deepEqual(
      read
        .map(({ path, mode, content }) => [path, mode, Buffer.from(content).toString()])
        .toSorted((one, other) => String(one[0]).localeCompare(String(other[0]))),
      [
        ['a/b/file', 0o644, 'deep\n'],
        ['top', 0o600, 'x'],
      ],
    )
    const refused = (bounds: { filesMax: number; bytesMax: number }) =>
      assert.rejects(trees().readFolder(now, folder, bounds), (error) => isServiceError(error, 'too_large'))
    await refused({ filesMax: 1, bytesMax: 100 })
    await refused({ filesMax: 10, bytesMax: 5 })
    assert.deepEqual(await trees().readFolder(now, '/nowhere', { filesMax: 1, bytesMax: 1 }), [])
    const unknown = trees().readFolder({ checkpointId: 'cp-none' }, folder, { filesMax: 1, bytesMax: 1 })
    await assert.rejects(unknown, (error) => isServiceError(error, 'not_found'))
    const stop = new AbortController()
    const aborted = trees().compare(now, now, { folder: '/', signal: stop.signal })
    stop.abort()
    await assert.rejects(aborted, { name: 'AbortError' })
    await assertClean()
    await remove(runc.driver, id)
  })

  test('trees: what deleting a checkpoint gives back is what it shares with nothing', async () => {
    const id = await create(runc.driver)
    const [older, newer] = [`cp-${id}-a`, `cp-${id}-b`]
    await inside(id, 'head -c 5000000 /dev/urandom >data && sync')
    await runc.driver.checkpoint(id, older, 'full')
    await inside(id, 'head -c 3000000 /dev/urandom >data && sync')
    await runc.driver.checkpoint(id, newer, 'full')
    const found = await trees().uniqueBytes([older, newer, 'cp-none'])
    assert.deepEqual([...found.keys()], [older, newer])
    // Its disk has what the newer state has overwritten.
    assert.ok((found.get(older) ?? 0) > 5_000_000, String(found.get(older)))
    await runc.driver.deleteCheckpoint(older)
    await runc.driver.deleteCheckpoint(newer)
    await remove(runc.driver, id)
  })
})
