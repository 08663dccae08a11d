import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** What a server may leave behind on its host, as lines to compare. */
export interface HostState {
  mounts: string[]
  links: string[]
  loops: string[]
  tables: string[]
  processes: string[]
  runDirs: string[]
}

export async function hostState(): Promise<HostState> {
  const [mounts, links, loops, tables] = await Promise.all([
    readFile('/proc/mounts', 'utf8'),
    run('ip', ['-o', 'link']),
    run('losetup', ['--list', '--noheadings', '--output', 'BACK-FILE']),
    run('nft', ['list', 'tables']),
  ])
  return {
    mounts: lines(mounts).filter((line) => line.includes('atoll')),
    links: lines(links.stdout).map((line) => line.split(':')[1]?.trim() ?? ''),
    loops: lines(loops.stdout),
    tables: lines(tables.stdout).filter((line) => line.includes('atoll')),
    processes: await sandboxProcesses(),
    runDirs: (await readdir('/run')).filter((name) => name.startsWith('atoll')).toSorted(),
  }
}

/** Guests, container runtimes, DNS forwarders and helpers, by command line. */
async function sandboxProcesses(): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const commands = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')))
  return commands
    .filter((command) => /^(\/\.atoll\/guest|\S*dnsmasq|\S*runc|\S*criu|\S*atoll-hostd)\0/.test(command))
    .toSorted()
}

function lines(text: string): string[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .toSorted()
}
