/**
 * What the end of a machine leaves of a server on this one, which goes on: no process, no mount, no link, nothing in `/run`; and the next
 * boot of the machine has another id than the one that records name.
 */
import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { unmountBelow } from '../../src/runtime/disk/index.ts'
import type { HostNames } from '../../src/runtime/host-names.ts'
import { bootId } from '../../src/runtime/process.ts'
import type { AtollServer } from '../e2e/server.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { processesOfServer } from '../support/host-processes.ts'

const run = promisify(execFile)

/** Ends all that belongs to the server, which may have ended by itself, at once and without a last word, and removes what a boot begins without. */
export async function endMachine(names: HostNames, server?: AtollServer): Promise<void> {
  const cgroups = await Cgroups.find()
  const ended = server?.kill()
  await killAll(names, cgroups)
  await ended
  // What was begun while the others were ended.
  await killAll(names, cgroups)
  for (const group of [names.cgroupRoot, names.workGroupRoot, names.databaseGroup]) await cgroups.remove(group)
  await unmountBelow(names.runDir)
  await removeNetwork(names.hash)
  for (const folder of [names.runDir, names.databaseDir]) await rm(folder, { recursive: true, force: true })
  // The kernel lets go of the pool's device in the background.
  await eventually(
    async () => {
      const { stdout } = await run('losetup', ['--noheadings', '--associated', names.poolFile])
      return stdout === ''
    },
    { what: 'the pool has no device' },
  )
}

/** Makes the boot that records of hosts name another one than that which runs. */
export async function forgetBoot(dataDir: string): Promise<void> {
  const earlier = randomUUID()
  for (const folder of ['sandboxes', 'checkpoints']) {
    for (const name of await readdir(join(dataDir, folder)).catch(() => [])) {
      const file = join(dataDir, folder, name)
      const text = await readFile(file, 'utf8')
      if (text.includes(bootId())) await writeFile(file, text.replaceAll(bootId(), earlier), { flush: true })
    }
  }
}

async function killAll(names: HostNames, cgroups: Cgroups): Promise<void> {
  await eventually(
    async () => {
      const pids = await processesOfServer(names)
      for (const pid of pids) {
        try {
          process.kill(pid, 'SIGKILL')
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
        }
      }
      // A frozen process does not end.
      for (const id of await cgroups.children(names.cgroupRoot)) await cgroups.thaw(names.cgroup(id))
      return pids.length === 0
    },
    { what: 'all processes have ended' },
  )
}

async function removeNetwork(hash: string): Promise<void> {
  const { stdout } = await run('ip', ['-o', '-brief', 'link'])
  const links = stdout.split('\n').flatMap((line) => /^(\S*?)(?:@|\s)/.exec(line)?.[1] ?? [])
  for (const link of links.filter((name) => name.includes(hash))) {
    // The other end of a pair goes with the first.
    await run('ip', ['link', 'delete', 'dev', link]).catch(() => undefined)
  }
  const tables = (await run('nft', ['list', 'tables'])).stdout.split('\n').filter((line) => line.includes(hash))
  for (const table of tables) await run('nft', ['delete', ...table.split(' ')])
}
