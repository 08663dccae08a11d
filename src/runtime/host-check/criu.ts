import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { CommandError, run } from '../command.ts'
import { exists } from '../exists.ts'

export interface CriuSelfTest {
  ok: boolean
  /** Such as `4.2.1`; empty when the program did not say. */
  version: string
  /** Why not, for the client and for `doctor`. */
  reason?: string
  /** Whether restored processes can run before all of their memory is there; absent where nothing works. */
  lazyPages?: LazyPagesTest
}

/** Setup writes it beside a CRIU that it built with the change that lazy memory needs. */
const lazyPagesMark = 'lazy-pages'
export const unfitForLazyPages = 'this CRIU loses the memory of processes that give some of it back meanwhile'

export type LazyPagesTest = { ok: true } | { ok: false; reason: string }

const selfTestTimeoutMs = 30_000

/**
 * Dumps and restores a real tree of two processes with the CRIU at `criuPath`. `criu check` is no substitute: 3.17 passes
 * it on kernels on which each of its dumps fails. Needs root. Never throws, and leaves no process and no file behind.
 */
export async function criuSelfTest(criuPath: string): Promise<CriuSelfTest> {
  let version = ''
  try {
    version = /^Version: (\S+)/m.exec(await run([criuPath, '--version']))?.[1] ?? ''
    if (version === '') throw new Error(`${criuPath} is not CRIU`)
    const lazyPages = await dumpAndRestore(criuPath)
    const fit = await exists(join(dirname(criuPath), lazyPagesMark))
    return { ok: true, version, lazyPages: fit ? lazyPages : { ok: false, reason: unfitForLazyPages } }
  } catch (error) {
    return { ok: false, version, reason: error instanceof Error ? error.message : String(error) }
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

async function dumpAndRestore(criuPath: string): Promise<LazyPagesTest> {
  const images = await mkdtemp(join(tmpdir(), 'atoll-criu-'))
  try {
    await run(
      ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child', '/bin/sh', '-c', script, 'sh', criuPath, images],
      { timeoutMs: selfTestTimeoutMs },
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
  } finally {
    await rm(images, { recursive: true, force: true })
  }
}

/** The first error of a CRIU log that names a cause; the last ones only repeat that it failed. */
function firstCause(log: string): string | undefined {
  const errors = [...log.matchAll(/Error \(([^)]*)\): (.*)$/gm)].map((match) => `${match[2]} (${match[1]})`)
  return errors.find((error) => !/exited, status=|FAILED|RLIMIT_NOFILE for self/.test(error)) ?? errors.at(-1)
}
