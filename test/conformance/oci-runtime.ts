/** What every `OciRuntime` promises, alone and below the driver. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, readlink, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { criuOptions } from '../../src/runtime/criu/dump.ts'
import { trialConfig } from '../../src/runtime/oci/trial-container.ts'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { end, isAlive } from '../../src/runtime/process.ts'
import { hostTool } from '../../src/runtime/host/testing/host-tool.ts'
import { OciRuntimeError, type CreateOciRuntime, type OciRuntime } from '../../src/runtime/oci/oci-runtime.ts'
import { imageDir } from '../support/images.ts'
import { knowing } from './driver-known.ts'
import { makeRuncFixture } from './driver-runc-host.ts'
import { freshId, memoryLimitBytes, specOf, succeed } from './driver-shell.ts'

const runFile = promisify(execFile)
const mebibyte = 1024 * 1024
const timeoutMs = 60_000

export function ociRuntimeConformance(name: string, create: CreateOciRuntime): void {
  describe(`the OCI runtime ${name}`, () => {
    let folder: string
    let cgroups: Cgroups
    let runtime: OciRuntime
    const group = (id: string) => `/atoll-oci-test/${id}`

    before(async () => {
      folder = await mkdtemp(`${tmpdir()}/atoll-oci-`)
      cgroups = await Cgroups.find()
      runtime = create({ runDir: folder, sandboxesDir: `${folder}/sandboxes`, dataDir: folder, hostd: hostTool })
      await mkdir(runtime.stateDir, { mode: 0o700 })
      await mkdir(`${folder}/root`)
      await runFile('mount', ['--bind', `${await realpath(`${imageDir}/base`)}/rootfs`, `${folder}/root`])
      await runFile('chmod', ['711', folder])
    })

    after(async () => {
      await cgroups.remove('/atoll-oci-test')
      await runFile('umount', [`${folder}/root`])
      await rm(folder, { recursive: true })
    })

    const makeBundle = async (id: string, argv: [string, ...string[]]): Promise<string> => {
      const bundle = `${folder}/${id}`
      await mkdir(bundle)
      const annotations = { 'org.criu.config': `${bundle}/criu.conf` }
      const config = trialConfig({ root: `${folder}/root`, hostname: id, cgroup: group(id), argv, annotations })
      await writeFile(`${bundle}/config.json`, JSON.stringify(config))
      await writeFile(`${bundle}/criu.conf`, `${[...criuOptions, `cgroup-root ${group(id)}`].join('\n')}\n`)
      return bundle
    }

    test('run: the process is in namespaces and a control group of its own, and known until delete', async () => {
      const bundle = await makeBundle('one', ['/usr/bin/sleep', '1000'])
      const process = await runtime.run('one', bundle)
      assert.ok(isAlive(process))
      assert.deepEqual(await cgroups.members(group('one')), [process.pid])
      for (const kind of ['pid', 'net', 'mnt', 'ipc', 'uts']) {
        const [own, host] = await Promise.all([process.pid, 'self'].map((pid) => readlink(`/proc/${pid}/ns/${kind}`)))
        assert.notEqual(own, host, kind)
      }
      const later = create({ runDir: folder, sandboxesDir: `${folder}/sandboxes`, dataDir: folder, hostd: hostTool })
      assert.deepEqual(await later.state('one'), process, 'a later instance knows it')
      await end(process)
      assert.deepEqual(await runtime.list(), ['one'])
      assert.deepEqual(await runtime.state('one'), process, 'an ended one stays known')
      await runtime.delete('one')
      await runtime.delete('one')
      assert.equal(await runtime.state('one'), undefined)
      assert.deepEqual(await readdir(runtime.stateDir), [])
    })

    test('run: a program that is not there is an OciRuntimeError, after which delete leaves nothing', async () => {
      const bundle = await makeBundle('none', ['/no/such/program'])
      await assert.rejects(
        runtime.run('none', bundle),
        (error) => error instanceof OciRuntimeError && error.reason !== '',
      )
      await runtime.delete('none')
      assert.deepEqual(await runtime.list(), [])
    })

    test('update: new limits hold at once, and less memory than is held is a conflict', async () => {
      const hold = `import time\nheld = bytearray(b"x") * ${24 * mebibyte}\ntime.sleep(1000)`
      const process = await runtime.run('limits', await makeBundle('limits', ['/usr/bin/python3', '-c', hold]))
      const resources = (bytes: number) => ({
        ...{ memory: { limit: bytes }, cpu: { quota: 50_000, period: 100_000 }, pids: { limit: 32 } },
      })
      await runtime.update('limits', resources(48 * mebibyte))
      const { stdout } = await runFile('sh', ['-c', `cat /sys/fs/cgroup/*${group('limits')}/pids.max`])
      assert.match(stdout, /^32$/m)
      const { stdout: rss } = await runFile('sh', [
        '-c',
        `until [ "$(awk '/VmRSS/ {print $2}' /proc/${process.pid}/status)" -gt 24576 ]; do sleep 0.05; done; echo held`,
      ])
      assert.equal(rss.trim(), 'held')
      await refuses(runtime.update('limits', resources(8 * mebibyte)), 'conflict')
      assert.ok(isAlive(process))
      await end(process)
      await runtime.delete('limits')
    })

    test('checkpoint, restore: a process goes on under its control group, where the runtime can', async () => {
      const process = await runtime.run('saved', await makeBundle('saved', ['/usr/bin/sleep', '1000']))
      const images = `${folder}/images`
      await mkdir(images)
      const call = { criu: `${await realpath(`${imageDir}/criu`)}/criu`, images, timeoutMs }
      const saved = runtime.checkpoint('saved', `${folder}/saved`, { ...call, leaveRunning: false })
      if (!runtime.canCheckpoint) {
        await assert.rejects(saved, OciRuntimeError)
        await assert.rejects(
          runtime.restore('saved', `${folder}/saved`, { ...call, lazyPages: false }),
          OciRuntimeError,
        )
        await end(process)
        await runtime.delete('saved')
        return
      }
      await saved
      assert.ok(!isAlive(process))
      await runtime.delete('saved')
      const restored = await runtime.restore('saved', `${folder}/saved`, { ...call, lazyPages: false })
      assert.ok(isAlive(restored))
      assert.deepEqual(await cgroups.members(group('saved')), [restored.pid])
      await end(restored)
      await runtime.delete('saved')
    })

    test('awaitStrays: there is nothing to wait for while no earlier server has begun anything', async () => {
      assert.equal(await runtime.awaitStrays(1_000), 0)
    })

    test('the driver over it: a sandbox answers, is resized, adopted, hibernated, woken and deleted', async () => {
      const fixture = await makeRuncFixture({ runtime: create })
      let driver = fixture.makeDriver()
      const id = freshId('sb')
      const ofHost = () => readFile('/run/atoll/fork-generation', 'utf8').catch(() => 'none')
      const beforeIt = await ofHost()
      try {
        assert.equal(driver.name, name)
        await driver.open(await knowing(fixture))
        const idle = await fixture.trace()
        await driver.create(specOf(id))
        const guest = fixture.guest(driver, id)
        assert.equal(await succeed(guest, 'echo kept >/workspace/file; hostname'), id)
        // Whatever root folder the runtime gives the sandbox, the host's own is not written to.
        assert.equal(await ofHost(), beforeIt)
        await driver.resize(specOf(id, { memoryMb: 320 }))
        assert.equal(await memoryLimitBytes(guest), 320 * mebibyte)
        if (!runtime.canCheckpoint) {
          const { fullCheckpoints, fullCheckpointsReason } = driver.capabilities
          assert.equal(fullCheckpoints, false)
          assert.match(fullCheckpointsReason ?? '', new RegExp(name))
          await refuses(driver.checkpoint(id, freshId('cp'), 'full'), 'full_checkpoint_unavailable')
        }
        await driver.close()
        driver = fixture.makeDriver()
        const report = await driver.open(await knowing(fixture, { sandboxIds: [id] }))
        assert.deepEqual(report.running, [id])
        await driver.hibernate(id)
        await driver.wake(specOf(id))
        assert.equal(await succeed(fixture.guest(driver, id), 'cat /workspace/file'), 'kept')
        await driver.delete(id)
        assert.deepEqual(await fixture.trace(), idle)
      } finally {
        await driver.delete(id).catch(() => undefined)
        await driver.close()
        await fixture.dispose()
      }
    })
  })
}
