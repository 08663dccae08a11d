import { readdir, readFile, readlink } from 'node:fs/promises'
import { basename } from 'node:path'
import { eventually } from '../../../src/lib/testing/eventually.ts'
import { HostNames } from '../../../src/runtime/host-names.ts'
import type { AtollServer } from '../server.ts'

const program = 'atoll-egress'

/** The pid of the process that holds the egress of a server's sandboxes; waits for another one than that which has ended. */
export async function proxyPid(server: AtollServer, ended?: number): Promise<number> {
  const { hash } = new HostNames(server.dataDir)
  return await eventually(
    async () => {
      for (const name of await readdir('/proc')) {
        const pid = Number(name)
        if (Number.isNaN(pid) || pid === ended) continue
        const [file, groups, stat] = await Promise.all([
          readlink(`/proc/${pid}/exe`).catch(() => ''),
          readFile(`/proc/${pid}/cgroup`, 'latin1').catch(() => ''),
          readFile(`/proc/${pid}/stat`, 'latin1').catch(() => ''),
        ])
        const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
        const isIt = basename(file.replace(' (deleted)', '')) === program || stat.includes(`(${program})`)
        if (isIt && (groups.includes(hash) || parent === server.pid)) return pid
      }
      throw new Error('no such process')
    },
    { what: program },
  )
}
