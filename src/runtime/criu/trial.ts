/** The trials that CRIU must pass before memory is saved: by itself, and through runc. */
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { defined } from '../../lib/defined.ts'
import { CommandError, run } from '../command.ts'
import { criuOptions } from './dump.ts'
import { followUp } from './reason.ts'
import { exists } from '../exists.ts'
import { isAlive, type ProcessIdentity } from '../process.ts'
import { runcCommand, runcFault, runcState } from '../oci/runc.ts'
import type { CriuWorkspace } from './trial-workspace.ts'
import { trialConfig } from '../oci/trial-container.ts'

const timeoutMs = 30_000
const answerTimeoutMs = 10_000
const pollMs = 2
const id = 'criu'

export type LazyPagesTest = { ok: true } | { ok: false; reason: string }

/**
 * Dumps and restores a tree of two processes with the CRIU at `criuPath`, then restores it again with lazy memory. Throws with
 * the reason when the first restore fails; a failure of the second is the answer.
 */
export async function dumpAndRestoreAlone(criuPath: string, workspace: CriuWorkspace): Promise<LazyPagesTest> {
  const images = join(workspace.path, 'alone')
  await mkdir(images)
  try {
    const isolated = ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child'] as const
    await run([...isolated, '/bin/sh', '-c', aloneScript, 'sh', criuPath, images], { timeoutMs })
    return { ok: true }
  } catch (error) {
    if (!(error instanceof CommandError)) throw error
    const phase = phases.get(error.exitCode)
    if (phase === undefined) throw error
    const log = await readFile(join(images, `${phase}.log`), 'utf8').catch(() => '')
    const reason = `${phase} failed: ${firstCause(`${error.stderr}\n${log}`) ?? error.message}`
    if (phase.startsWith('lazy')) return { ok: false, reason }
    throw new Error(reason, { cause: error })
  }
}

/**
 * Runs as PID 1 of a pid namespace. So process ids are free at the restore, whatever the machine's init does with orphans, and the end of
 * PID 1 ends all processes.
 */
const aloneScript = `
criu=$1 images=$2
tree() { [ -n "$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)" ]; }
until_ok() { for attempt in $(seq 100); do "$@" && return; sleep 0.05; done; return 1; }
gone() { ! kill -0 "-$pid" 2>/dev/null; }

setsid /bin/sh -c 'sleep 600 & wait' </dev/null >/dev/null 2>&1 &
pid=$!
until_ok tree || { echo 'cannot start a process to dump' >&2; exit 1; }
"$criu" dump --tree "$pid" --images-dir "$images" --log-file dump.log || exit 2
until_ok gone || { echo 'the dumped processes did not end' >&2; exit 1; }
"$criu" restore --restore-detached --images-dir "$images" --log-file restore.log || exit 3
until_ok tree || { echo 'the restored process tree is not whole' >&2; exit 1; }

kill -9 "-$pid"
until_ok gone || { echo 'the restored processes did not end' >&2; exit 1; }
cd "$images" || exit 4
"$criu" lazy-pages --images-dir . --work-dir . --log-file lazy.log &
daemon=$!
until_ok test -S lazy-pages.socket || exit 4
"$criu" restore --lazy-pages --restore-detached --images-dir . --work-dir . --log-file lazy-restore.log || exit 5
wait "$daemon" || exit 4
until_ok tree || exit 5
`

/** The phase of the script that failed, by its exit status. */
const phases = new Map<number | undefined, string>([
  [2, 'dump'],
  [3, 'restore'],
  [4, 'lazy'],
  [5, 'lazy-restore'],
])

/**
 * The process of the container. On SIGUSR1 it reports whether droppable memory (MAP_DROPPABLE, Linux 6.11) still holds what was
 * written there, and whether it still has its POSIX lock on a file that it has mapped. Older kernels refuse the first mapping.
 */
const containerProgram = `
import fcntl, mmap, os, signal
MAP_DROPPABLE = 8
try:
    droppable = mmap.mmap(-1, 4096, flags=MAP_DROPPABLE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    droppable[:4] = b"seed"
except OSError:
    droppable = None
locked = open("/dev/locked", "w+b")
locked.truncate(4096)
shared = mmap.mmap(locked.fileno(), 4096, flags=mmap.MAP_SHARED)
fcntl.lockf(locked, fcntl.LOCK_EX)
def is_locked():
    child = os.fork()
    if child == 0:
        try: fcntl.lockf(open("/dev/locked", "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError: os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0
def say(name, text):
    with open("/dev/draft", "w") as file: file.write(text)
    os.rename("/dev/draft", "/dev/" + name)
def answer(*_):
    memory = "kept" if droppable is not None and any(droppable[:]) else "forgotten"
    say("answer", memory + (" locked" if is_locked() else " unlocked"))
signal.signal(signal.SIGUSR1, answer)
say("ready", "")
while True: signal.pause()
`

/**
 * Saves and restores a container on the base image at `base` by runc with the CRIU at `criuPath`, as the driver does. The caller ends what
 * is left in the workspace. Throws with the reason when the process does not go on, or still holds memory that forks must not share.
 * Returns what else it has kept.
 */
export async function dumpAndRestoreContainer(
  criuPath: string,
  base: string,
  workspace: CriuWorkspace,
): Promise<{ keepsPosixLocks: boolean }> {
  const folder = (name: string): string => join(workspace.path, name)
  const [root, images, config] = [folder('rootfs'), folder('images'), folder('criu.conf')]
  await mkdir(root)
  // Restored processes open the images as root of the container.
  await mkdir(images)
  await chmod(images, 0o711)
  await run(['mount', '-o', 'bind,ro', base, root])
  const argv = ['/usr/bin/python3', '-c', containerProgram] as const
  const annotations = { 'org.criu.config': config }
  const bundle = trialConfig({ root, hostname: 'criu', cgroup: workspace.cgroup, argv, annotations })
  await writeFile(folder('config.json'), JSON.stringify(bundle))
  await writeFile(config, `${criuOptions.join('\n')}\n`)

  await runc(workspace, undefined, ['run', '--detach', '--bundle', workspace.path, id])
  const started = await processOf(workspace)
  await says(started, 'ready')
  const files = ['--image-path', images, '--work-path', images]
  await runc(workspace, criuPath, ['checkpoint', ...files, id])
  await until(() => !isAlive(started), 'runc checkpoint failed: the process of the container runs on')
  await writeFile(config, `${[...criuOptions, `cgroup-root ${workspace.cgroup}`].join('\n')}\n`)
  await runc(workspace, criuPath, ['restore', '--detach', ...files, '--bundle', workspace.path, id])
  const restored = await processOf(workspace)
  process.kill(restored.pid, 'SIGUSR1')
  const [memory, lock] = (await says(restored, 'answer')).split(' ')
  if (memory === 'kept') {
    throw new Error('it saves memory that the kernel may drop, so forks would draw the same random numbers')
  }
  return { keepsPosixLocks: lock === 'locked' }
}

async function runc(
  workspace: CriuWorkspace,
  criu: string | undefined,
  args: readonly [string, ...string[]],
): Promise<void> {
  const [call] = args
  const log = join(workspace.path, `${call}.log`)
  try {
    // A detached container would keep the pipes open.
    const command = runcCommand(join(workspace.path, 'runc'), { log, ...defined({ criu }) }, args)
    await run(command, { detached: args.includes('--detach'), timeoutMs })
  } catch (error) {
    const criuLog = join(workspace.path, 'images', call === 'checkpoint' ? 'dump.log' : 'restore.log')
    const cause = firstCause(await readFile(criuLog, 'utf8').catch(() => ''))
    const reason = cause ?? ((await runcFault(log, [workspace.path])) || outcomeOf(error))
    throw new Error(`runc ${call} failed: ${reason}`, { cause: error })
  }
}

async function processOf(workspace: CriuWorkspace): Promise<ProcessIdentity> {
  const found = runcState(join(workspace.path, 'runc'), id)
  if (found === undefined) throw new Error('runc has no state of the container that it started')
  return found
}

/** Waits for a file of the process; returns its content. */
async function says(process: ProcessIdentity, name: string): Promise<string> {
  const file = `/proc/${process.pid}/root/dev/${name}`
  const isThere = async () => {
    if (!isAlive(process)) throw new Error('the process of the container has ended')
    return exists(file)
  }
  await until(isThere, 'the process of the container does not answer')
  return await readFile(file, 'utf8')
}

/** Says how runc failed when its log is empty. */
function outcomeOf(error: unknown): string {
  if (!(error instanceof CommandError)) return String(error)
  return error.stderr.trim().split('\n').at(-1) || error.outcome
}

async function until(condition: () => boolean | Promise<boolean>, failure: string): Promise<void> {
  const end = Date.now() + answerTimeoutMs
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(failure)
    await sleep(pollMs)
  }
}

/** The first error of a CRIU log that names a cause; the last ones only repeat that CRIU failed. */
export function firstCause(log: string): string | undefined {
  const errors = [...log.matchAll(/Error \(([^)]*)\): (.*)$/gm)].map((match) => `${match[2]} (${match[1]})`)
  return errors.find((error) => !followUp.test(error)) ?? errors.at(-1)
}
