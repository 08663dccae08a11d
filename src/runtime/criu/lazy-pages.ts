import { readFile, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import type { Run } from '../command.ts'
import { exists } from '../exists.ts'
import type { ProcessIdentity } from '../process.ts'
import { faultIn } from './reason.ts'

const startTimeoutMs = 10_000
const startPollMs = 1
/** CRIU makes this socket in its work folder when it listens. */
const socketFile = 'lazy-pages.socket'
const watcherFile = 'lazy-pages.sh'
/** Two lines of `/proc/<pid>/stat`: of the watcher, then of the daemon. */
export const lazyProcessesFile = 'lazy-pages.pids'
const statusFile = 'lazy-pages.status'
const logFile = 'lazy-pages.log'

/** A CRIU that serves pages, and its parent, the shell that watches it. */
export interface LazyPages {
  daemon: ProcessIdentity
  watcher: ProcessIdentity
}

/**
 * Starts `criu lazy-pages` on a folder of images that is one restore's own, and returns when that restore may begin. The daemon serves the
 * pages that processes touch, then all others, and ends. It has a process session of its own and outlives this process.
 *
 * If the daemon dies before it has served all pages, the kernel shows the missing ones as zeros. So a shell waits for its end and kills the
 * processes in `members` (paths of `cgroup.procs`) at once, whether a server runs or not. Throws when the daemon does not start; something
 * of it may be left then.
 */
export async function startLazyPages(
  run: Run,
  criu: string,
  images: string,
  members: readonly string[],
): Promise<LazyPages> {
  await writeFile(`${images}/${watcherFile}`, watcherScript(members), { mode: 0o700 })
  await run(['setsid', '--fork', `${images}/${watcherFile}`, criu, images], { detached: true })
  const until = Date.now() + startTimeoutMs
  for (;;) {
    if (await exists(`${images}/${socketFile}`)) {
      const started = await findLazyPages(images)
      if (started !== undefined) return started
    }
    const status = await lazyPagesStatus(images)
    if (status !== undefined) {
      const log = await readFile(`${images}/${logFile}`, 'utf8').catch(() => '')
      const cause = new Error(`criu lazy-pages ended with status ${status}: ${log.trim()}`)
      // The daemon reads the images before the restore does, and refuses the same ones.
      const { reason, mayPass } = faultIn(log, [images])
      const code = mayPass ? 'full_checkpoint_unavailable' : 'memory_not_restorable'
      throw new ServiceError(code, `the memory cannot be restored: ${reason}`, { cause })
    }
    if (Date.now() > until) throw new Error('criu lazy-pages does not listen')
    await sleep(startPollMs)
  }
}

/** The processes that were started on a folder of images; undefined without any. */
export async function findLazyPages(images: string): Promise<LazyPages | undefined> {
  const text = await readFile(`${images}/${lazyProcessesFile}`, 'latin1').catch(() => '')
  const [watcher, daemon] = text.split('\n').map(processOf)
  return watcher === undefined || daemon === undefined ? undefined : { watcher, daemon }
}

/** The exit status of CRIU: 0 when every page is in its place. Undefined while CRIU works, and when its watcher has died. */
export async function lazyPagesStatus(images: string): Promise<number | undefined> {
  const text = await readFile(`${images}/${statusFile}`, 'latin1').catch(() => '')
  return text === '' ? undefined : Number(text)
}

/** Reads a line of `/proc/<pid>/stat`. */
function processOf(stat: string): ProcessIdentity | undefined {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const [pid, startTicks] = [Number.parseInt(stat, 10), Number(fields[19])]
  return pid > 1 && startTicks > 0 ? { pid, startTicks } : undefined
}

/** The watcher's script. After the end of CRIU it forks nothing, as each moment counts, and writes the reason before it kills. Paths are ours. */
function watcherScript(members: readonly string[]): string {
  return `#!/bin/sh
cd "$2" || exit 1
"$1" lazy-pages --images-dir . --work-dir . --log-file ${logFile} -v1 &
cat "/proc/$$/stat" "/proc/$!/stat" >${lazyProcessesFile}.new && mv ${lazyProcessesFile}.new ${lazyProcessesFile}
wait $!
status=$?
echo $status >${statusFile}
[ $status = 0 ] && exit
for members in ${members.map((path) => `'${path}'`).join(' ')}; do
  [ -e "$members" ] && while read -r pid; do [ "$pid" -gt 1 ] && kill -9 "$pid"; done <"$members"
done
`
}
