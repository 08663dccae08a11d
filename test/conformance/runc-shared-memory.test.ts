/** Saved memory that repeats: what consecutive checkpoints of one sandbox have in common is kept once. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { link, mkdir, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import fc from 'fast-check'
import { roundsOf } from '../../src/lib/testing/thorough.ts'
import { hostTool } from '../../src/runtime/host/testing/host-tool.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, sendLine, startPython } from './driver-shell.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const runFile = promisify(execFile)
const pageBytes = 4096
/** Keeps 32 MiB that no compression would shrink; each line changes one page in each MiB, and is answered with a digest of all. */
const load = `
import hashlib, os, sys
data = bytearray(os.urandom(32 << 20))
for turn in range(1000):
    for at in range(turn * 4096, len(data), 1 << 20): data[at:at + 4096] = os.urandom(4096)
    print(hashlib.sha256(data).hexdigest(), flush=True)
    sys.stdin.readline()`

describe('saved memory of the runc driver that repeats', () => {
  const runc = useRunc()
  const { guest } = runc
  const memory = () => `${runc.fixture.names.poolDir}/memory/checkpoints`

  const digests = async (id: string) => (await guest(id).output('load')).stdout.toString().trim().split('\n')
  const nextTurn = async (id: string) => {
    const { length } = await digests(id)
    await sendLine(guest(id), 'load')
    while ((await digests(id)).length === length);
  }
  const sharingOf = async (id: string) => {
    const text = await readFile(`${runc.fixture.names.dataDir}/checkpoints/${id}.json`, 'utf8')
    return (JSON.parse(text) as { memory: { sharing?: number } }).memory.sharing
  }
  const pagesOf = async (id: string) => {
    const names = (await readdir(`${memory()}/${id}`)).filter((name) => name.startsWith('pages-')).toSorted()
    return names.map((name) => `${memory()}/${id}/${name}`)
  }
  const contentOf = async (id: string) => {
    const hash = createHash('sha256')
    for (const file of await pagesOf(id)) hash.update(await readFile(file))
    return hash.digest('hex')
  }
  /** Bytes of a folder in the pool, and how many of them are its own. */
  const spaceOf = async (folder: string) => {
    await runFile('btrfs', ['filesystem', 'sync', runc.fixture.names.poolDir])
    const { stdout } = await runFile('btrfs', ['filesystem', 'du', '--raw', '-s', folder])
    const [total = 0, own = 0] = stdout.trimEnd().split('\n').at(-1)!.trim().split(/\s+/).map(Number)
    return { total, own }
  }

  test('checkpoints: turn after turn they keep what is new, and forks have what was saved', async () => {
    const { driver, fixture } = runc
    const before = await fixture.trace()
    const source = await create(driver)
    await startPython(guest(source), 'load', load)
    const checkpoints = [freshId('cp'), freshId('cp'), freshId('cp')] as const
    const saved = new Map<string, { digest: string | undefined; content: string }>()
    for (const cp of checkpoints) {
      await driver.checkpoint(source, cp, 'full')
      saved.set(cp, { digest: (await digests(source)).at(-1), content: await contentOf(cp) })
      await nextTurn(source)
    }
    // What it saves is brought to the disk at once, with all that was saved before.
    await driver.hibernate(source)
    await eventually(async () => (await sharingOf(checkpoints[2])) === 2)
    assert.equal(await sharingOf(checkpoints[0]), undefined)
    assert.equal(await sharingOf(checkpoints[1]), 1)
    for (const cp of checkpoints.slice(1)) {
      const { total, own } = await spaceOf(`${memory()}/${cp}`)
      assert.ok(total > 32 * 1024 ** 2 && own < total / 4, `${own} of ${total} bytes are its own`)
    }
    await remove(driver, source, checkpoints[0])
    for (const cp of checkpoints.slice(1)) {
      const { digest, content } = saved.get(cp)!
      assert.equal(await contentOf(cp), content)
      const fork = await create(driver, { from: { checkpointId: cp } })
      await nextTurn(fork)
      const told = await digests(fork)
      assert.equal(told.at(-2), digest)
      assert.notEqual(told.at(-1), digest)
      await remove(driver, fork, cp)
    }
    assert.deepEqual(await fixture.trace(), before)
  })

  test('checkpoint of a fork: shares with the one that the fork was started from', async () => {
    const { driver } = runc
    const [source, base, cp] = [await create(driver), freshId('cp'), freshId('cp')]
    await startPython(guest(source), 'load', load)
    await driver.checkpoint(source, base, 'full')
    await driver.delete(source)
    const fork = await create(driver, { from: { checkpointId: base } })
    await driver.checkpoint(fork, cp, 'full')
    await driver.hibernate(fork)
    await eventually(async () => (await sharingOf(cp)) === 1)
    await remove(driver, fork, base, cp)
  })

  /** Folders of images with these files of pages, in the pool. */
  const withFolders = async (work: (like: string, dir: string) => Promise<void>) => {
    const [like, dir] = [`${memory()}/like`, `${memory()}/${freshId('cp')}`]
    await Promise.all([mkdir(like), mkdir(dir)])
    try {
      await work(like, dir)
    } finally {
      await Promise.all([like, dir].map((folder) => rm(folder, { recursive: true })))
    }
  }
  const share = async (like: string, dir: string) => Number(await hostTool.runTool({ op: 'share-pages', like, dir }))

  test('pages: whatever has changed, moved or come, a file holds the same bytes afterwards', async () => {
    const page = fc.integer({ min: 0, max: 40 })
    const file = fc.array(fc.tuple(page, fc.integer({ min: 1, max: 60 })), { maxLength: 6 })
    const pages = Array.from({ length: 200 }, () => randomBytes(pageBytes))
    /** Pages from each start on, as many as each count says. */
    const contentFrom = (runs: readonly (readonly [number, number])[]) =>
      Buffer.concat(runs.flatMap(([from, count]) => pages.slice(from, from + count)))
    await fc.assert(
      fc.asyncProperty(fc.array(file, { minLength: 1, maxLength: 3 }), file, (earlier, later) =>
        withFolders(async (like, dir) => {
          for (const [index, runs] of earlier.entries())
            await writeFile(`${like}/pages-${index + 1}.img`, contentFrom(runs))
          const content = contentFrom(later)
          await writeFile(`${dir}/pages-1.img`, content, { mode: 0o640 })
          const shared = await share(like, dir)
          assert.ok(shared <= content.length)
          assert.ok(content.equals(await readFile(`${dir}/pages-1.img`)))
          assert.equal((await stat(`${dir}/pages-1.img`)).mode & 0o777, 0o640)
          assert.deepEqual(await readdir(dir), ['pages-1.img'])
        }),
      ),
      { numRuns: roundsOf(30, 300) },
    )
  })

  test('pages: files under other names, of broken pages or other kinds stay, and so do those of a folder that is gone', async () => {
    await withFolders(async (like, dir) => {
      const content = randomBytes(100 * pageBytes)
      await writeFile(`${like}/pages-1.img`, content)
      await writeFile(`${dir}/pages-1.img`, content)
      await writeFile(`${dir}/pages-2.img`, content)
      await writeFile(`${dir}/core-1.img`, content)
      await link(`${dir}/pages-1.img`, `${like}/restored`)
      await truncate(`${dir}/pages-2.img`, content.length - 1)
      const inodes = async () =>
        Promise.all((await readdir(dir)).toSorted().map(async (name) => (await stat(`${dir}/${name}`)).ino))
      const before = await inodes()
      assert.equal(await share(like, dir), 0)
      assert.deepEqual(await inodes(), before)
      await rm(`${like}/restored`)
      assert.equal(await share(like, dir), content.length)
      assert.equal((await spaceOf(`${dir}/pages-1.img`)).own, 0)
      await assert.rejects(share(like, `${dir}/gone`), /No such file/)
    })
  })
})
