import { readFileSync } from 'node:fs'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { basename } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const pollMs = 2
const endTimeoutMs = 10_000
const strayPollMs = 20
/** Programs that this driver starts on the host and that a killed server may have left in the middle of their work. */
const ownPrograms = new Set(['runc', 'atoll-hostd', 'btrfs', 'mkfs.btrfs', 'mount', 'umount'])

/** A process that cannot be mistaken for a later one with the same number. */
export interface ProcessIdentity {
  pid: number
  /** Field 22 of `/proc/<pid>/stat`: clock ticks from boot to its start. */
  startTicks: number
}

/** Reads one small kernel file without yielding: hundreds of sandboxes are looked at in a few milliseconds. */
export function isAlive(identity: ProcessIdentity): boolean {
  try {
    const stat = readFileSync(`/proc/${identity.pid}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return fields[0] !== 'Z' && fields[0] !== 'X' && Number(fields[19]) === identity.startTicks
  } catch {
    return false
  }
}

/**
 * Ends a process and returns when it has ended, with all its children if it is the init of a pid namespace. With `graceMs`
 * it is asked first (SIGTERM) and killed after that time.
 */
export async function end(identity: ProcessIdentity, graceMs = 0): Promise<void> {
  if (graceMs > 0 && isAlive(identity)) {
    send(identity.pid, 'SIGTERM')
    if (await endsWithin(identity, graceMs)) return
  }
  if (isAlive(identity)) send(identity.pid, 'SIGKILL')
  if (!(await endsWithin(identity, endTimeoutMs))) throw new Error(`process ${identity.pid} does not end`)
}

async function endsWithin(identity: ProcessIdentity, timeoutMs: number): Promise<boolean> {
  const until = Date.now() + timeoutMs
  while (isAlive(identity)) {
    if (Date.now() > until) return false
    await sleep(pollMs)
  }
  return true
}

/** Kills the CRIUs that work in one of `folders`, whoever started them. Those that bring memory are at it for longer than a server lives. */
export async function killCriu(folders: readonly string[], { lazyPagesToo = true } = {}): Promise<void> {
  for (const { identity, argv, cwd } of await processesOfHost()) {
    const works = folders.some((folder) => cwd === folder || cwd.startsWith(`${folder}/`))
    if (works && isCriu(argv) && (lazyPagesToo || argv[1] !== 'lazy-pages')) await end(identity)
  }
}

/**
 * Waits, not for ever, for dumps and restores that a server which died has begun: the processes in them would not outlive
 * their interruption.
 */
export async function awaitStrayDumps(runcRoot: string, timeoutMs: number): Promise<void> {
  const until = Date.now() + timeoutMs
  const busy = async () =>
    (await processesOfHost()).some(
      ({ argv }) =>
        basename(argv[0] ?? '') === 'runc' &&
        argv.includes(runcRoot) &&
        (argv.includes('checkpoint') || argv.includes('restore')),
    )
  while ((await busy()) && Date.now() < until) await sleep(strayPollMs)
}

/** Kills what a server that died left running of its own tools, which work on one of `paths` or below. */
export async function killStrayTools(paths: readonly string[]): Promise<number> {
  let killed = 0
  for (const { identity, argv } of await processesOfHost()) {
    const names = (word: string) => paths.some((path) => word === path || word.startsWith(`${path}/`))
    const [program = '', ...words] = argv
    // What is installed below such a folder may work for another server; one that is resident ends with its own.
    if (!ownPrograms.has(basename(program)) || words[0] === 'serve' || !words.some(names)) continue
    await end(identity)
    killed += 1
  }
  return killed
}

/** CRIU writes what it does over its arguments: `criu: dump --rpc …`. */
function isCriu([word = '']: readonly string[]): boolean {
  return basename(word) === 'criu' || word.startsWith('criu: ')
}

/** The programs of `ownPrograms` that run on this host. */
async function processesOfHost(): Promise<{ identity: ProcessIdentity; argv: string[]; cwd: string }[]> {
  const found: { identity: ProcessIdentity; argv: string[]; cwd: string }[] = []
  for (const name of await readdir('/proc')) {
    const pid = Number(name)
    if (!Number.isSafeInteger(pid) || pid === process.pid) continue
    const argv = await readFile(`/proc/${pid}/cmdline`, 'utf8').then(
      (text) => text.split('\0'),
      () => [],
    )
    const startTicks = startTicksOf(pid)
    if (startTicks === undefined || !(ownPrograms.has(basename(argv[0] ?? '')) || isCriu(argv))) continue
    found.push({ identity: { pid, startTicks }, argv, cwd: await readlink(`/proc/${pid}/cwd`).catch(() => '') })
  }
  return found
}

function startTicksOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19])
  } catch {
    return undefined
  }
}

/** Sends a signal; harmless when the process has just ended. */
export function send(pid: number, name: 'SIGTERM' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void {
  try {
    process.kill(pid, name)
  } catch {
    // It has just ended.
  }
}
