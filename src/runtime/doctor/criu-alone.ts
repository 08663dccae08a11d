import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { CommandError, run } from '../command.ts'
import type { CriuPlace } from './criu-place.ts'

export type LazyPagesTest = { ok: true } | { ok: false; reason: string }

const timeoutMs = 30_000

/**
 * Dumps and restores a tree of two processes with the CRIU at `criuPath`, then once more with lazy memory, whose failure is its
 * answer. Throws with the reason where the first fails.
 */
export async function dumpAndRestoreAlone(criuPath: string, place: CriuPlace): Promise<LazyPagesTest> {
  const images = join(place.path, 'alone')
  await mkdir(images)
  try {
    await run(
      ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child', '/bin/sh', '-c', script, 'sh', criuPath, images],
      { timeoutMs },
    )
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
 * Runs as PID 1 of a namespace of its own: there the process ids of the dump are surely free at the restore, whatever the
 * machine's own init does with orphans, and the end of PID 1 is the end of everything in it.
 */
const script = `
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

/** What the script was doing, by its exit status. */
const phases = new Map<number | undefined, string>([
  [2, 'dump'],
  [3, 'restore'],
  [4, 'lazy'],
  [5, 'lazy-restore'],
])

/** The first error of a CRIU log that names a cause; the last ones only repeat that it failed. */
export function firstCause(log: string): string | undefined {
  const errors = [...log.matchAll(/Error \(([^)]*)\): (.*)$/gm)].map((match) => `${match[2]} (${match[1]})`)
  return errors.find((error) => !/exited, status=|FAILED|RLIMIT_NOFILE for self/.test(error)) ?? errors.at(-1)
}
