/** What the host does for a sandbox or an image, in control groups with limits. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { dirname } from 'node:path'
import { Readable } from 'node:stream'
import { describe, test } from 'node:test'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { readNow } from '../../src/runtime/read-now.ts'
import { defaultImageLimits } from '../../src/runtime/oci-image/limits.ts'
import type { ImageSource } from '../../src/sandbox/ports/runtime-driver.ts'
import { imageOf, ociArchiveOf, tarOf } from '../support/oci-image.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, startPython } from './driver-shell.ts'

const mebibyte = 2 ** 20

describe('work of the host for runc sandboxes', () => {
  const imageLimits = { work: { ...defaultImageLimits.work, memoryBytes: 32 * mebibyte } }
  const runc = useRunc({ imageLimits })
  const archiveOf = (compression: 'gzip' | 'wide zstd', content: Buffer): ImageSource => {
    const archive = ociArchiveOf(imageOf([tarOf([{ path: 'file', content }])], { compression }))
    return { archive: Readable.from([archive]) }
  }

  test('import: one that takes more memory than it may fails alone, and leaves nothing', async () => {
    const { driver, fixture } = runc
    const before = await fixture.trace()
    const ids = [freshId('cp'), freshId('cp'), freshId('cp')] as const
    const [dear, ...others] = await Promise.allSettled([
      driver.importImage!(ids[0], archiveOf('wide zstd', Buffer.alloc(96 * mebibyte, 'dear'))),
      driver.importImage!(ids[1], archiveOf('gzip', Buffer.alloc(96 * mebibyte, 'cheap'))),
      driver.importImage!(ids[2], archiveOf('gzip', Buffer.from('small'))),
    ])
    await refuses(
      dear?.status === 'rejected' ? Promise.reject(dear.reason as Error) : Promise.resolve(),
      'too_large',
      /^archive cannot be unpacked: it needed more than 32 MB of memory$/,
    )
    assert.deepEqual(
      others.map(({ status }) => status),
      ['fulfilled', 'fulfilled'],
    )
    await remove(driver, ids[1], ids[2])
    assert.deepEqual(await fixture.trace(), before)
    assert.deepEqual(await readdir(`${fixture.names.poolDir}/imports`), [])
  })

  test('dump: one of many mappings, files and processes is within its group, which has limits', async () => {
    const { driver } = runc
    const [id, cp] = [await create(driver, { memoryMb: 1024 }), freshId('cp')]
    const program = `
import mmap, os
held = [mmap.mmap(-1, 4096, prot=mmap.PROT_READ | (index % 2) * mmap.PROT_WRITE) for index in range(20000)]
files = [open("/etc/passwd") for _ in range(900)]
for _ in range(5):
    if os.fork() == 0:
        os.read(os.pipe()[0], 1)
print("ready", flush=True)
input()`
    await startPython(runc.guest(id), 'many', program)
    await driver.checkpoint(id, cp, 'full')
    const cgroups = await Cgroups.find()
    const group = `${runc.fixture.names.workGroupRoot}/dump-0`
    assert.ok((cgroups.limits(group).memoryBytes ?? Infinity) < Infinity)
    const peaks = cgroups.memberFiles(group).map((file) => {
      const files = ['memory.max_usage_in_bytes', 'memory.peak'].map((name) => `${dirname(file)}/${name}`)
      return Math.max(0, ...files.map((path) => Number(readNow(path) ?? 0)))
    })
    assert.ok(Math.max(...peaks) > 16 * mebibyte, 'it has run in it')
    await remove(driver, id, cp)
  })

  test('work that a server has left ends with the next start, and its groups are removed', async () => {
    const { driver, fixture } = runc
    const id = await create(driver)
    const before = await fixture.trace()
    const cgroups = await Cgroups.find()
    const { workGroupRoot } = fixture.names
    const group = `${workGroupRoot}/import-0`
    const folders = await cgroups.makeLimited(workGroupRoot, group, defaultImageLimits.work)
    const left = spawn('sleep', ['1000'])
    const ended = once(left, 'exit')
    for (const folder of folders) writeFileSync(`${folder}/cgroup.procs`, String(left.pid))
    // The sandbox runs on, so that a close leaves the groups as a killed server does.
    await driver.close()
    await runc.reopen({ sandboxIds: [id] })
    assert.deepEqual(await ended, [null, 'SIGKILL'])
    assert.deepEqual(await fixture.trace(), before)
    await remove(runc.driver, id)
  })
})
