/** The trial that CRIU must pass before memory is saved: by itself, and through the runc of the machine. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { run } from '../../src/runtime/command.ts'
import { findCriu } from '../../src/runtime/criu/program.ts'
import { exists } from '../../src/runtime/exists.ts'
import { criuSelfTest } from '../../src/runtime/criu/self-test.ts'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { ApiClient } from '../support/api-client.ts'
import { liveProcesses } from '../support/host-processes.ts'
import { sh, startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const imageDir = process.env['ATOLL_IMAGE_DIR'] || '/var/lib/atoll/images'
const criu = join(imageDir, 'criu', 'criu')
const temporaryDir = '/var/tmp'
const projectDir = join(import.meta.dirname, '../..')
const trialsMax = 10

let folder: string
beforeEach(async () => {
  folder = await mkdtemp('/var/tmp/atoll-trial-')
})
afterEach(async () => {
  await rm(folder, { recursive: true })
})

test('trial: a runc that cannot checkpoint fails the row of doctor with its reason, and the server refuses full checkpoints with it', async () => {
  // What was found with another runc must not count.
  assert.notEqual((await findCriu(imageDir, { program: 'runc' })).path, undefined)
  const script = `#!/bin/sh
for word; do [ "$word" != checkpoint ] || { echo 'runc: no such luck' >&2; exit 1; }; done
PATH=\${PATH#*${folder}:} exec runc "$@"
`
  await writeFile(join(folder, 'runc'), script, { mode: 0o755 })
  await using server = await AtollServer.start({ env: { PATH: `${folder}:${process.env['PATH']}` } })
  const api = new ApiClient(server.url, server.key)
  const id = await startSandbox(server)
  const { status, body } = await api.post(`/api/sandboxes/${id}/checkpoints`, { name: 'one' })
  assert.deepEqual([status, body.code], [503, 'full_checkpoint_unavailable'])
  assert.match(body.error, /: CRIU does not work on this machine: runc checkpoint failed: runc: no such luck\. /)
  await sh(server, id, 'echo kept >/root/file')
  await server.json('POST', `/api/sandboxes/${id}/hibernate`)
  assert.equal(await sh(server, id, 'cat /root/file'), 'kept')

  const { output } = await server.program('src/server/doctor.ts', [])
  assert.match(
    output,
    /^CRIU +fails +\S+ runc checkpoint failed: runc: no such luck\n +→ full checkpoints are unavail/m,
  )
  assert.match(output, /^lazy memory +no +no CRIU that works$/m)
  assert.match(output, /^fork +works +of the disk alone: CRIU does not work /m)
})

test('trial: the next one removes what a killed one has left: container, mount, control group and files', async () => {
  const program = `
    const { criuSelfTest } = await import('./src/runtime/criu/self-test.ts')
    await criuSelfTest(process.argv[1], process.argv[2])`
  // In the place of a trial, when its container starts, runs, is saved, and is brought back.
  for (const moment of ['run.log', 'runc/criu/state.json', 'images/dump.log', 'images/restore.log']) {
    // A busy machine may let a trial end before anybody looks.
    let place: string | undefined
    for (let trials = 0; place === undefined; trials += 1) {
      assert.ok(trials < trialsMax, `a trial is killed at ${moment}`)
      place = await killedAt(moment, program)
    }
    const { ok, reason } = await criuSelfTest(criu, imageDir)
    assert.deepEqual([ok, reason], [true, undefined])
    assert.deepEqual(await leftOf(place), [], moment)
    assert.deepEqual(await leftOf(`atoll-criu-${process.pid}-`), [], moment)
  }
})

/** Kills a trial that has come to a moment with its folder and its mount, and returns the name of the folder; undefined when it was ending. */
async function killedAt(moment: string, program: string): Promise<string | undefined> {
  const argv = ['--input-type=module', '--eval', program, criu, imageDir]
  const trial = spawn(process.execPath, argv, { cwd: projectDir, stdio: 'ignore' })
  const ended = once(trial, 'exit')
  let place: string | undefined
  while (place === undefined || !(await exists(join(temporaryDir, place, moment)))) {
    if (trial.exitCode !== null) return undefined
    await sleep(1)
    place ??= (await readdir(temporaryDir)).find((name) => name.startsWith(`atoll-criu-${trial.pid}-`))
  }
  // It stands while it is looked at, and removes nothing. Once it is gone, a doctor of another test may remove what it has left.
  trial.kill('SIGSTOP')
  const hasCome = await exists(join(temporaryDir, place, moment))
  const left = (await leftOf(place)).slice(0, 2)
  trial.kill('SIGKILL')
  await ended
  return hasCome && left.join() === 'folder,mount' ? place : undefined
}

test('trial: a CRIU that brings back memory which the kernel may drop does not pass', async () => {
  const images = join(folder, 'images')
  const [root, upper, work] = [join(images, 'base/rootfs'), join(folder, 'upper'), join(folder, 'work')]
  for (const path of [root, upper, work]) await mkdir(path, { recursive: true })
  const python = await pythonLibrary()
  await mkdir(join(upper, python), { recursive: true })
  // Where all mappings are ordinary ones, a right CRIU does with them what a wrong one does with those.
  const ordinary = `
import mmap
class Mapping(mmap.mmap):
    def __new__(cls, *args, flags, **options):
        return super().__new__(cls, *args, flags=mmap.MAP_PRIVATE, **options)
mmap.mmap = Mapping
`
  await writeFile(join(upper, python, 'sitecustomize.py'), ordinary)
  const layers = `lowerdir=${imageDir}/base/rootfs,upperdir=${upper},workdir=${work}`
  await run(['mount', '-t', 'overlay', '-o', layers, 'overlay', root])
  try {
    const { ok, reason } = await criuSelfTest(criu, images)
    const kept = 'it saves memory that the kernel may drop, so forks would draw the same random numbers'
    assert.deepEqual([ok, reason], [false, kept])
  } finally {
    await run(['umount', '--lazy', root])
  }
})

/** The folder of Python in the base image in which it looks for changes of a site. */
async function pythonLibrary(): Promise<string> {
  const parent = join(imageDir, 'base/rootfs/usr/lib')
  const name = (await readdir(parent)).find((entry) => /^python3\.\d+$/.test(entry))
  assert.ok(name)
  return `usr/lib/${name}`
}

/** What carries this name, or begins with it. */
async function leftOf(place: string): Promise<string[]> {
  const has = (names: string[]) => names.some((name) => name.startsWith(place))
  const commands = (await liveProcesses()).map(({ command }) => command)
  return [
    ...(has(await readdir(temporaryDir)) ? ['folder'] : []),
    ...((await readFile('/proc/self/mounts', 'utf8')).includes(`/${place}`) ? ['mount'] : []),
    ...(has(await (await Cgroups.find()).children('')) ? ['control group'] : []),
    ...commands.filter((command) => command.includes(place)),
  ]
}
